//! Memory of a card, plain or in planes, and pinned memory of the host.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, Claim, DeviceError, Gate, HostSpan, MemoryLayout, PrivateRows};
use orlop_graph::{AccessKind, TensorDesc};

use crate::context::Context;
use crate::planes::Planes;
use crate::sys::DevicePtr;

/// Every tensor begins at a multiple of this: the widest loads, and whole cache lines.
pub(crate) const ALIGNMENT: u64 = 256;

/// How tensors lie in a kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// On the card, as their descriptions say.
    Plain,
    /// On the card, in planes.
    Planes,
    /// On the host, in pages that stay where they are.
    Pinned,
}

/// A kind of memory.
pub(crate) struct CudaBufferType {
    name: String,
    kind: Kind,
    context: Arc<Context>,
}

impl CudaBufferType {
    pub(crate) fn of(context: &Arc<Context>, kind: Kind) -> Arc<dyn BufferType> {
        let name = match kind {
            Kind::Plain => context.name.to_string(),
            Kind::Planes => format!("{} planes", context.name),
            Kind::Pinned => format!("{} pinned", context.name),
        };
        Arc::new(CudaBufferType { name, kind, context: Arc::clone(context) })
    }
}

impl fmt::Debug for CudaBufferType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl BufferType for CudaBufferType {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        ALIGNMENT
    }

    fn layout(&self) -> MemoryLayout {
        if self.kind == Kind::Planes { MemoryLayout::Private } else { MemoryLayout::Plain }
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        match self.kind {
            Kind::Planes => Planes::of(tensor).map_or_else(|| tensor.bytes(), |planes| planes.bytes()),
            _ => tensor.bytes(),
        }
    }

    fn is_host(&self) -> bool {
        self.kind == Kind::Pinned
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        let driver = self.context.enter()?;
        let size = bytes.max(1);
        let (host, device) = if self.kind == Kind::Pinned {
            let (host, device) = self.context.note_memory(driver.allocate_host(size), &self.name, bytes)?;
            // SAFETY: `write_bytes` asks for `size` bytes that may be written: they were just allocated.
            unsafe { host.write_bytes(0, size as usize) };
            (NonNull::new(host), device)
        } else {
            (None, self.context.note_memory(driver.allocate(size), &self.name, bytes)?)
        };
        let context = Arc::clone(&self.context);
        Ok(Arc::new(CudaBuffer { buffer_type: self, context, device, host, bytes, gate: Gate::new() }))
    }
}

/// Memory that the card reaches.
pub(crate) struct CudaBuffer {
    buffer_type: Arc<dyn BufferType>,
    context: Arc<Context>,
    device: DevicePtr,
    /// Where the host sees it, if it is the host's.
    host: Option<NonNull<u8>>,
    bytes: u64,
    gate: Arc<Gate>,
}

// SAFETY: the memory is reached through the driver, which takes calls from any thread, or through `host`, under claims.
unsafe impl Send for CudaBuffer {}
// SAFETY: as above.
unsafe impl Sync for CudaBuffer {}

impl CudaBuffer {
    fn at(&self, claim: &Claim, kind: AccessKind, offset: u64, bytes: u64) -> Result<DevicePtr, DeviceError> {
        let name = self.buffer_type.name();
        if !claim.allows(self, kind) {
            return Err(DeviceError::NotClaimed { buffer_type: name.to_owned() });
        }
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let tensor = name.to_owned();
            return Err(DeviceError::OutOfBounds { tensor, offset, bytes, available: self.bytes });
        }
        Ok(self.device + offset)
    }

    fn planes(&self, at: &PrivateRows<'_>, given: u64) -> Result<Planes, DeviceError> {
        let planes = Planes::of(at.desc).filter(|_| self.buffer_type.layout() == MemoryLayout::Private);
        let planes = planes.ok_or_else(|| DeviceError::PrivateLayout {
            tensor: at.tensor.to_owned(),
            buffer_type: self.buffer_type.name().to_owned(),
            rule: "only whole tensors of types that have planes",
        })?;
        let expected = at.rows.end.saturating_sub(at.rows.start).saturating_mul(at.desc.row_bytes());
        if expected != given {
            return Err(DeviceError::WrongLength { tensor: at.tensor.to_owned(), expected, given });
        }
        Ok(planes)
    }
}

/// A buffer of this crate on a card; `None` for others' memory.
pub(crate) fn own<'a>(buffer: &'a dyn Buffer, context: &Arc<Context>) -> Option<&'a CudaBuffer> {
    let own = buffer.as_any()?.downcast_ref::<CudaBuffer>()?;
    Arc::ptr_eq(&own.context, context).then_some(own)
}

/// A buffer of this crate, on whichever card.
pub(crate) fn any(buffer: &dyn Buffer) -> Option<&CudaBuffer> {
    buffer.as_any()?.downcast_ref::<CudaBuffer>()
}

impl CudaBuffer {
    /// Its first byte, as its card sees it.
    pub(crate) fn address(&self) -> DevicePtr {
        self.device
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

// SAFETY: `host` is memory that lives as long as the buffer, and every access is under a claim to `gate`.
unsafe impl Buffer for CudaBuffer {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    fn write(&self, claim: &Claim, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let to = self.at(claim, AccessKind::Write, offset, bytes.len() as u64)?;
        if bytes.is_empty() { Ok(()) } else { self.context.write(to, bytes) }
    }

    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let from = self.at(claim, AccessKind::Read, offset, bytes.len() as u64)?;
        if bytes.is_empty() { Ok(()) } else { self.context.read(from, bytes) }
    }

    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
        let bytes = range.end.saturating_sub(range.start);
        let at = self.at(claim, AccessKind::Write, range.start, bytes)?;
        if bytes == 0 { Ok(()) } else { self.context.fill(at, value, bytes) }
    }

    fn write_rows(&self, claim: &Claim, at: &PrivateRows<'_>, bytes: &[u8]) -> Result<(), DeviceError> {
        let planes = self.planes(at, bytes.len() as u64)?;
        for part in planes.pack(at.rows.clone(), bytes) {
            self.write(claim, at.offset + part.offset, &part.bytes)?;
        }
        Ok(())
    }

    fn read_rows(&self, claim: &Claim, at: &PrivateRows<'_>, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let planes = self.planes(at, bytes.len() as u64)?;
        let mut parts = planes.parts(at.rows.clone());
        for part in &mut parts {
            self.read(claim, at.offset + part.offset, &mut part.bytes)?;
        }
        planes.unpack(&parts, bytes);
        Ok(())
    }

    fn host(&self) -> Option<HostSpan> {
        self.host.map(|base| HostSpan { base, bytes: self.bytes, writable: true })
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        let Ok(driver) = self.context.enter() else { return };
        match self.host {
            Some(host) => driver.free_host(host.as_ptr()),
            None => driver.free(self.device),
        }
    }
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.buffer_type.name())
    }
}
