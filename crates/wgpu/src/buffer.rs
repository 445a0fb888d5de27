use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orlop_backend::{Buffer, BufferType, Claim, DeviceError, Gate};
use orlop_graph::AccessKind;

use crate::gpu::Gpu;

/// A device's memory. A buffer is at most as large as a binding.
#[derive(Debug)]
pub(crate) struct WgpuMemory {
    pub(crate) name: String,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) alignment: u64,
    pub(crate) max_bytes: u64,
}

impl BufferType for WgpuMemory {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        if bytes > self.max_bytes {
            let buffer_type = self.name.clone();
            return Err(DeviceError::TooLarge { buffer_type, bytes, max: self.max_bytes });
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let raw = self.gpu.buffer(&self.name, bytes, usage)?;
        let (gpu, gate) = (Arc::clone(&self.gpu), Gate::new());
        gpu.adopt(&gate, &raw);
        gpu.held.fetch_add(bytes, Ordering::AcqRel);
        Ok(Arc::new(WgpuBuffer { buffer_type: self, gpu, gate, raw, bytes }))
    }
}

/// A buffer of this crate's own, not of tensors. Counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OwnBuffer {
    gpu: Arc<Gpu>,
    pub(crate) raw: wgpu::Buffer,
}

impl OwnBuffer {
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<OwnBuffer, DeviceError> {
        Ok(OwnBuffer { raw: gpu.buffer(label, bytes, usage)?, gpu: Arc::clone(gpu) })
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        self.gpu.forget(self.raw.size());
    }
}

/// A buffer of a device.
struct WgpuBuffer {
    buffer_type: Arc<dyn BufferType>,
    gpu: Arc<Gpu>,
    gate: Arc<Gate>,
    raw: wgpu::Buffer,
    bytes: u64,
}

impl WgpuBuffer {
    fn check(&self, claim: &Claim, kind: AccessKind, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.gpu.check()?;
        let name = || self.buffer_type.name().to_owned();
        if !claim.allows(self, kind) {
            return Err(DeviceError::NotClaimed { buffer_type: name() });
        }
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(DeviceError::OutOfBounds { tensor: name(), offset, bytes, available: self.bytes });
        }
        Ok(())
    }

    /// One word.
    fn word(&self, at: u64) -> Result<[u8; 4], DeviceError> {
        let mut word = [0; 4];
        self.gpu.staging()?.read(&self.gpu, &self.raw, at, &mut word)?;
        Ok(word)
    }

    /// A range extended to whole words, with the buffer's current bytes around it.
    fn widened(&self, offset: u64, bytes: &[u8]) -> Result<(u64, Vec<u8>), DeviceError> {
        let Range { start, end } = words(offset..offset + bytes.len() as u64);
        let mut wide = vec![0; (end - start) as usize];
        let last = wide.len() - 4;
        wide[..4].copy_from_slice(&self.word(start)?);
        wide[last..].copy_from_slice(&self.word(end - 4)?);
        let from = (offset - start) as usize;
        wide[from..from + bytes.len()].copy_from_slice(bytes);
        Ok((start, wide))
    }
}

/// A range extended to whole words.
pub(crate) fn words(range: Range<u64>) -> Range<u64> {
    range.start & !3..range.end.next_multiple_of(4)
}

/// Whether a range consists of whole words, as drivers require for copies.
fn is_whole(offset: u64, bytes: u64) -> bool {
    offset.is_multiple_of(4) && bytes.is_multiple_of(4)
}

impl Drop for WgpuBuffer {
    fn drop(&mut self) {
        self.gpu.disown(&self.gate);
        self.gpu.held.fetch_sub(self.bytes, Ordering::AcqRel);
        self.gpu.forget(self.raw.size());
    }
}

// SAFETY: `Buffer` asks for the truth about memory that `host` reports: it reports none.
unsafe impl Buffer for WgpuBuffer {
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
        self.check(claim, AccessKind::Write, offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        if is_whole(offset, bytes.len() as u64) {
            return self.gpu.staging()?.write(&self.gpu, &self.raw, offset, bytes);
        }
        let (start, wide) = self.widened(offset, bytes)?;
        self.gpu.staging()?.write(&self.gpu, &self.raw, start, &wide)
    }

    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.check(claim, AccessKind::Read, offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut staging = self.gpu.staging()?;
        if is_whole(offset, bytes.len() as u64) {
            return staging.read(&self.gpu, &self.raw, offset, bytes);
        }
        let Range { start, end } = words(offset..offset + bytes.len() as u64);
        let mut wide = vec![0; (end - start) as usize];
        staging.read(&self.gpu, &self.raw, start, &mut wide)?;
        let from = (offset - start) as usize;
        bytes.copy_from_slice(&wide[from..from + bytes.len()]);
        Ok(())
    }

    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
        let bytes = range.end.saturating_sub(range.start);
        self.check(claim, AccessKind::Write, range.start, bytes)?;
        let mut at = range.start;
        if value == 0 && is_whole(range.start, bytes) && bytes > 0 {
            let mut staging = self.gpu.staging()?;
            let mut encoder = self.gpu.encoder();
            staging.encode(&mut encoder);
            encoder.clear_buffer(&self.raw, range.start, Some(bytes));
            staging.turn(&self.gpu.submit(encoder));
            return Ok(());
        }
        let pattern = vec![value; bytes.min(crate::staging::BLOCK) as usize];
        while at < range.end {
            let part = (range.end - at).min(pattern.len() as u64);
            self.write(claim, at, &pattern[..part as usize])?;
            at += part;
        }
        Ok(())
    }

    fn pull(
        &self,
        [own, other]: [&Claim; 2],
        at: u64,
        from: &dyn Buffer,
        range: Range<u64>,
    ) -> Result<bool, DeviceError> {
        let bytes = range.end.saturating_sub(range.start);
        let Some(source) = self.gpu.raw(from.gate()) else { return Ok(false) };
        // Drivers copy whole words, and not within one buffer.
        let words = is_whole(at, bytes) && range.start.is_multiple_of(4);
        if !words || Arc::ptr_eq(&self.gate, from.gate()) {
            return Ok(false);
        }
        self.check(own, AccessKind::Write, at, bytes)?;
        if !other.allows(from, AccessKind::Read) {
            return Err(DeviceError::NotClaimed { buffer_type: from.buffer_type().name().to_owned() });
        }
        if range.end > from.bytes() {
            let (tensor, available) = (from.buffer_type().name().to_owned(), from.bytes());
            return Err(DeviceError::OutOfBounds { tensor, offset: range.start, bytes, available });
        }
        if bytes > 0 {
            let mut staging = self.gpu.staging()?;
            let mut encoder = self.gpu.encoder();
            staging.encode(&mut encoder);
            encoder.copy_buffer_to_buffer(&source, range.start, &self.raw, at, bytes);
            staging.turn(&self.gpu.submit(encoder));
        }
        Ok(true)
    }
}

impl fmt::Debug for WgpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.buffer_type.name())
    }
}
