//! A test device's buffer type and buffers, each in front of a buffer of the inner device.

use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{
    Buffer, BufferType, Claim, DeviceError, Gate, HostSpan, MemoryLayout, PrivateRows, same_type,
};
use orlop_graph::{AccessKind, TensorDesc};

use super::builder::Settings;
use super::ledger::Ledger;

/// A test device's kind of memory. Behind each of its buffers lies one of the inner device's, with the same gate,
/// so that a claim to one is a claim to the other.
#[derive(Debug)]
pub(super) struct TestMemory {
    pub(super) settings: Arc<Settings>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) behind: Arc<dyn BufferType>,
}

impl BufferType for TestMemory {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn alignment(&self) -> u64 {
        self.settings.alignment.unwrap_or_else(|| self.behind.alignment())
    }

    fn max_bytes(&self) -> u64 {
        self.settings.max_bytes.min(self.behind.max_bytes())
    }

    fn layout(&self) -> MemoryLayout {
        self.behind.layout()
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        self.behind.alloc_bytes(tensor)
    }

    fn is_host(&self) -> bool {
        self.settings.host_visible && self.behind.is_host()
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        if bytes > self.max_bytes() {
            let buffer_type = self.name().to_owned();
            return Err(DeviceError::TooLarge { buffer_type, bytes, max: self.max_bytes() });
        }
        self.ledger.reserve(bytes)?;
        let behind = self.fresh(bytes).inspect_err(|_| self.ledger.unreserve(bytes))?;
        self.ledger.adopt(&behind);
        Ok(Arc::new(TestBuffer { buffer_type: Arc::clone(&self) as _, memory: self, bytes, behind }))
    }
}

impl TestMemory {
    fn fresh(&self, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        let behind = Arc::clone(&self.behind).allocate(bytes)?;
        if let Some(value) = self.settings.fresh_bytes {
            let claim = Claim::take(&*behind, AccessKind::Write)?;
            behind.fill(&claim, 0..bytes, value)?;
        }
        Ok(behind)
    }
}

/// A buffer that shows of the one behind it what the device's memory shows.
#[derive(Debug)]
struct TestBuffer {
    buffer_type: Arc<dyn BufferType>,
    memory: Arc<TestMemory>,
    bytes: u64,
    behind: Arc<dyn Buffer>,
}

impl TestBuffer {
    /// Errors name this device's memory, not the one behind it.
    fn check(&self, claim: &Claim, kind: AccessKind, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.memory.ledger.check()?;
        let name = self.memory.name();
        if !claim.allows(self, kind) {
            return Err(DeviceError::NotClaimed { buffer_type: name.to_owned() });
        }
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let tensor = name.to_owned();
            return Err(DeviceError::OutOfBounds { tensor, offset, bytes, available: self.bytes });
        }
        Ok(())
    }
}

impl Drop for TestBuffer {
    fn drop(&mut self) {
        self.memory.ledger.release(self.behind.gate(), self.bytes);
    }
}

// SAFETY: the memory reported, if any, is that of the buffer behind, which this one keeps alive and which answers
// for it; the gate is that buffer's as well, so both are claimed together.
unsafe impl Buffer for TestBuffer {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn gate(&self) -> &Arc<Gate> {
        self.behind.gate()
    }

    fn write(&self, claim: &Claim, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(claim, AccessKind::Write, offset, bytes.len() as u64)?;
        self.behind.write(claim, offset, bytes)
    }

    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.check(claim, AccessKind::Read, offset, bytes.len() as u64)?;
        self.behind.read(claim, offset, bytes)
    }

    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
        self.check(claim, AccessKind::Write, range.start, range.end.saturating_sub(range.start))?;
        self.behind.fill(claim, range, value)
    }

    fn write_rows(&self, claim: &Claim, at: &PrivateRows<'_>, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.ledger.check()?;
        self.behind.write_rows(claim, at, bytes)
    }

    fn read_rows(&self, claim: &Claim, at: &PrivateRows<'_>, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.ledger.check()?;
        self.behind.read_rows(claim, at, bytes)
    }

    fn pull(
        &self,
        [own, other]: [&Claim; 2],
        at: u64,
        from: &dyn Buffer,
        range: Range<u64>,
    ) -> Result<bool, DeviceError> {
        if !self.memory.settings.direct_copies || !same_type(&self.buffer_type, from.buffer_type()) {
            return Ok(false);
        }
        let bytes = range.end.saturating_sub(range.start);
        self.check(own, AccessKind::Write, at, bytes)?;
        match self.memory.ledger.behind(from) {
            Some(source) => self.behind.pull([own, other], at, &*source, range),
            None => Ok(false),
        }
    }

    fn init_tensor(&self, desc: &TensorDesc, offset: u64) -> Result<(), DeviceError> {
        self.memory.ledger.check()?;
        self.behind.init_tensor(desc, offset)
    }

    fn free_tensor(&self, desc: &TensorDesc, offset: u64) {
        self.behind.free_tensor(desc, offset);
    }

    fn reset(&self) {
        self.behind.reset();
    }

    fn host(&self) -> Option<HostSpan> {
        self.behind.host().filter(|_| self.memory.settings.host_visible)
    }
}
