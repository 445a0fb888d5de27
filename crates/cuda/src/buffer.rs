//! Memory of a GPU, plain or in planes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, Claim, DeviceError, Gate, MemoryLayout, PrivateRows};
use orlop_graph::{AccessKind, TensorDesc};

use crate::context::Context;
use crate::planes::Planes;
use crate::sys::{DeviceMemory, DevicePtr};

/// Every tensor begins at a multiple of this: the widest loads, and whole cache lines.
pub(crate) const ALIGNMENT: u64 = 256;

/// How tensors lie in a kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// As their descriptions say.
    Plain,
    /// In planes.
    Planes,
}

/// A kind of memory.
pub(crate) struct CudaBufferType {
    name: String,
    kind: MemoryKind,
    context: Arc<Context>,
}

impl CudaBufferType {
    pub(crate) fn of(context: &Arc<Context>, kind: MemoryKind) -> Arc<dyn BufferType> {
        let name = match kind {
            MemoryKind::Plain => context.name.to_string(),
            MemoryKind::Planes => format!("{} planes", context.name),
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
        if self.kind == MemoryKind::Planes { MemoryLayout::Private } else { MemoryLayout::Plain }
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        match self.kind {
            MemoryKind::Planes => Planes::of(tensor).map_or_else(|| tensor.bytes(), |planes| planes.bytes()),
            _ => tensor.bytes(),
        }
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        let allocated = DeviceMemory::allocate(self.context.enter()?, bytes);
        let memory = self.context.note_memory(allocated, &self.name, bytes)?;
        let context = Arc::clone(&self.context);
        Ok(Arc::new(CudaBuffer { buffer_type: self, context, memory, bytes, gate: Gate::new() }))
    }
}

/// Memory of a GPU. Queues keep it, or a program that does, until work that touches it is done.
pub(crate) struct CudaBuffer {
    buffer_type: Arc<dyn BufferType>,
    context: Arc<Context>,
    memory: DeviceMemory,
    bytes: u64,
    gate: Arc<Gate>,
}

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
        Ok(self.memory.address() + offset)
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

/// A buffer of this crate on this GPU.
pub(crate) fn own<'a>(buffer: &'a dyn Buffer, context: &Arc<Context>) -> Option<&'a CudaBuffer> {
    let own = buffer.as_any()?.downcast_ref::<CudaBuffer>()?;
    Arc::ptr_eq(&own.context, context).then_some(own)
}

/// A buffer of this crate, on any GPU.
pub(crate) fn any(buffer: &dyn Buffer) -> Option<&CudaBuffer> {
    buffer.as_any()?.downcast_ref::<CudaBuffer>()
}

impl CudaBuffer {
    /// Its first byte, as its GPU sees it.
    pub(crate) fn address(&self) -> DevicePtr {
        self.memory.address()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

// SAFETY: `Buffer` asks for the truth about memory that `host` reports: it reports none.
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
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: `Context::write` asks for bytes of this GPU's memory, checked in `at`, that no other work touches until they
        // have arrived: the claim keeps other work away, later work waits for arrivals, and `Drop` does.
        unsafe { self.context.write(to, bytes) }
    }

    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let from = self.at(claim, AccessKind::Read, offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: `Context::read` asks for bytes of this GPU's memory, checked in `at`, that no other work writes meanwhile:
        // the claim keeps it away.
        unsafe { self.context.read(from, bytes) }
    }

    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
        let bytes = range.end.saturating_sub(range.start);
        let at = self.at(claim, AccessKind::Write, range.start, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: `Context::fill` asks for bytes of this GPU's memory, checked in `at`, that no other work touches meanwhile:
        // the claim keeps it away.
        unsafe { self.context.fill(at, value, bytes) }
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

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        // Memory is freed behind the host's writes to it.
        let _ = self.context.await_transfers();
    }
}

impl fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.buffer_type.name())
    }
}
