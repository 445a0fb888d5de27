//! Staging memory of a queue, for bytes of the host that it sets and gets: pinned, of a fixed size, in two rings of blocks.

use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{DeviceError, ReadBlock, ReadRing};

use crate::Error;
use crate::context::Context;
use crate::sys::{DevicePtr, Event, PinnedMemory, Stream};

/// Bytes of a block.
const BLOCK: u64 = 128 << 10;
/// Blocks of each ring.
const BLOCKS: u64 = 16;
/// Bytes of pinned host memory that a queue takes when `Queue::set` or `get` is first called, and keeps.
pub(crate) const QUEUE_STAGING: u64 = 2 * BLOCKS * BLOCK;

pub(crate) struct QueueStaging {
    writes: Vec<PinnedBlock>,
    next: usize,
    pub(crate) reads: ReadRing<PinnedBlock>,
}

/// A block, and the point behind the last copy from or to it. A stream that was given such a copy is waited for before the
/// memory is freed: queues do so when they are dropped.
pub(crate) struct PinnedBlock {
    context: Arc<Context>,
    memory: Arc<PinnedMemory>,
    offset: u64,
    passed: Event,
}

impl QueueStaging {
    pub(crate) fn new(context: &Arc<Context>) -> Result<QueueStaging, DeviceError> {
        let primary = context.enter()?;
        let allocated = PinnedMemory::allocate(primary, QUEUE_STAGING);
        let name = format!("staging memory of {}", context.name);
        let memory = Arc::new(context.note_memory(allocated, &name, QUEUE_STAGING)?);
        let block = |index| {
            let (context, memory) = (Arc::clone(context), Arc::clone(&memory));
            let passed = context.note(Event::new(primary))?;
            Ok(PinnedBlock { context, memory, offset: index * BLOCK, passed })
        };
        let ring = |range: Range<u64>| range.map(block).collect::<Result<Vec<_>, DeviceError>>();
        let reads = ReadRing::new(ring(BLOCKS..2 * BLOCKS)?, BLOCK);
        Ok(QueueStaging { writes: ring(0..BLOCKS)?, next: 0, reads })
    }

    /// Copies bytes to blocks, and gives each to the GPU: `give` is told which range of the bytes a block holds, and calls
    /// [`PinnedBlock::upload`]. Waits only if all blocks are taken, for the one that was given first.
    pub(crate) fn write(
        &mut self,
        bytes: &[u8],
        mut give: impl FnMut(&PinnedBlock, Range<u64>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for (index, piece) in bytes.chunks(BLOCK as usize).enumerate() {
            let block = &self.writes[self.next];
            block.wait()?;
            // SAFETY: `copy_nonoverlapping` asks for as many bytes at both, apart: a piece fits a block, which only this queue
            // reaches, and the GPU has read what it held.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), block.host(), piece.len()) };
            let start = index as u64 * BLOCK;
            give(block, start..start + piece.len() as u64)?;
            self.next = (self.next + 1) % self.writes.len();
        }
        Ok(())
    }
}

impl PinnedBlock {
    fn host(&self) -> *mut u8 {
        self.memory.host().as_ptr().wrapping_add(self.offset as usize)
    }

    /// Waits on the host for the last copy.
    fn wait(&self) -> Result<(), DeviceError> {
        self.context.enter()?;
        self.context.note(self.passed.sync())
    }

    /// Gives a stream a copy of the block's first bytes to the GPU.
    ///
    /// # Safety
    /// As [`Stream::write`] for `to`. `bytes` is at most the block's size.
    pub(crate) unsafe fn upload(&self, stream: &Stream, to: DevicePtr, bytes: u64) -> Result<(), Error> {
        // SAFETY: `Stream::write` asks for this function's contract, and that the block stays as it is until the stream has
        // passed: it is written next after `wait`, and freed after its queue has waited for the stream.
        unsafe { stream.write(to, self.host(), bytes) }?;
        self.passed.record(stream)
    }

    /// Gives a stream a copy of bytes of the GPU to the block's beginning.
    ///
    /// # Safety
    /// As [`Stream::read`] for `from`. `bytes` is at most the block's size.
    pub(crate) unsafe fn download(&self, stream: &Stream, from: DevicePtr, bytes: u64) -> Result<(), Error> {
        // SAFETY: `Stream::read` asks for this function's contract, and that the block is not touched until the stream has
        // passed: it is read after `wait`, and freed after its queue has waited for the stream.
        unsafe { stream.read(self.host(), from, bytes) }?;
        self.passed.record(stream)
    }
}

impl ReadBlock for PinnedBlock {
    fn take(&mut self, to: &mut [u8]) -> Result<(), DeviceError> {
        self.wait()?;
        // SAFETY: `copy_nonoverlapping` asks for as many bytes at both, apart: a piece of a read fits a block, whose bytes are
        // initialized and which this exclusive reference alone reaches, as the GPU has written it.
        unsafe { std::ptr::copy_nonoverlapping(self.host(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }
}
