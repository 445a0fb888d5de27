//! Staging memory between host and device, of a fixed size and allocated once. The driver's own pools are not used.
//!
//! Writes gather in a mapped block, which the next submission copies to the destinations, or earlier when it is full; the
//! blocks form a ring. Reads that the host waits for pass through one block at a time; reads of queues have a ring of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use orlop_backend::{DeviceError, ReadBlock, ReadRing};

use crate::buffer::OwnBuffer;
use crate::gpu::Gpu;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 256 << 10;
/// Blocks for writing.
const BLOCKS: usize = 4;
/// Blocks for the reads of queues.
const READ_BLOCKS: usize = 4;
/// Bytes of all blocks: for writing, for one read, and for the reads of queues.
pub(crate) const STAGING: u64 = (BLOCKS as u64 + 1 + READ_BLOCKS as u64) * BLOCK;

const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

#[derive(Debug)]
pub(crate) struct Staging {
    blocks: Vec<Block>,
    current: usize,
    /// Copies from the current block that are not submitted yet.
    copies: Vec<Copy>,
    used: u64,
    down: wgpu::Buffer,
}

#[derive(Debug)]
struct Block {
    buffer: wgpu::Buffer,
    /// The state of its mapping.
    state: Arc<AtomicU8>,
    /// The submission that reads it.
    reader: Option<wgpu::SubmissionIndex>,
}

#[derive(Debug)]
struct Copy {
    from: u64,
    to: wgpu::Buffer,
    at: u64,
    bytes: u64,
}

impl Staging {
    pub(crate) fn new(gpu: &Gpu) -> Result<Staging, DeviceError> {
        let up = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        let down = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let mut blocks = Vec::with_capacity(BLOCKS);
        for _ in 0..BLOCKS {
            let block =
                Block { buffer: gpu.buffer("staging", BLOCK, up)?, state: Arc::default(), reader: None };
            block.map();
            blocks.push(block);
        }
        let down = gpu.buffer("staging", BLOCK, down)?;
        Ok(Staging { blocks, current: 0, copies: Vec::new(), used: 0, down })
    }

    /// Writes whole words of a buffer, visible to all later submissions.
    pub(crate) fn write(
        &mut self,
        gpu: &Gpu,
        to: &wgpu::Buffer,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        let mut done = 0;
        while done < bytes.len() {
            if self.used == BLOCK {
                self.flush(gpu);
            }
            let block = &self.blocks[self.current];
            block.wait(gpu)?;
            let part = (bytes.len() - done).min((BLOCK - self.used) as usize);
            let range = self.used..self.used + part as u64;
            let mut view = block
                .buffer
                .get_mapped_range_mut(range)
                .map_err(|error| gpu.lost_error(&error.to_string()))?;
            view.copy_from_slice(&bytes[done..done + part]);
            drop(view);
            let at = at + done as u64;
            self.copies.push(Copy { from: self.used, to: to.clone(), at, bytes: part as u64 });
            self.used = (self.used + part as u64).next_multiple_of(wgpu::MAP_ALIGNMENT);
            done += part;
        }
        Ok(())
    }

    /// Whether copies are pending.
    pub(crate) fn is_pending(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Encodes the pending copies. [`Staging::turn`] must follow the submission.
    pub(crate) fn encode(&mut self, encoder: &mut wgpu::CommandEncoder) {
        if self.copies.is_empty() {
            return;
        }
        let block = &self.blocks[self.current];
        block.state.store(PENDING, Ordering::Release);
        block.buffer.unmap();
        for Copy { from, to, at, bytes } in self.copies.drain(..) {
            encoder.copy_buffer_to_buffer(&block.buffer, from, &to, at, bytes);
        }
    }

    /// Advances to the next block, and maps the submitted one again.
    pub(crate) fn turn(&mut self, submitted: &wgpu::SubmissionIndex) {
        if self.used > 0 && self.copies.is_empty() {
            let block = &mut self.blocks[self.current];
            block.reader = Some(submitted.clone());
            block.map();
            self.current = (self.current + 1) % self.blocks.len();
            self.used = 0;
        }
    }

    /// Submits pending copies.
    pub(crate) fn flush(&mut self, gpu: &Gpu) {
        if self.is_pending() {
            let mut encoder = gpu.encoder();
            self.encode(&mut encoder);
            self.turn(&gpu.submit(encoder));
        }
    }

    /// Reads whole words of a buffer, after all earlier submissions and writes.
    pub(crate) fn read(
        &mut self,
        gpu: &Gpu,
        from: &wgpu::Buffer,
        at: u64,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        for (index, part) in bytes.chunks_mut(BLOCK as usize).enumerate() {
            let mut encoder = gpu.encoder();
            self.encode(&mut encoder);
            let (at, length) = (at + index as u64 * BLOCK, part.len() as u64);
            encoder.copy_buffer_to_buffer(from, at, &self.down, 0, length);
            let submitted = gpu.submit(encoder);
            self.turn(&submitted);
            read_mapped(gpu, &self.down, submitted, part)?;
        }
        Ok(())
    }
}

/// A block that receives a piece of a queue's read.
#[derive(Debug)]
pub(crate) struct MappedBlock {
    gpu: Arc<Gpu>,
    buffer: OwnBuffer,
    /// The copy to it that was not taken yet.
    submitted: Option<wgpu::SubmissionIndex>,
}

/// The blocks for reads of a device's queues.
pub(crate) fn read_ring(gpu: &Arc<Gpu>) -> Result<ReadRing<MappedBlock>, DeviceError> {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let block = |_| {
        let buffer = OwnBuffer::new(gpu, "staging", BLOCK, usage)?;
        Ok(MappedBlock { gpu: Arc::clone(gpu), buffer, submitted: None })
    };
    let blocks: Vec<MappedBlock> = (0..READ_BLOCKS).map(block).collect::<Result<_, DeviceError>>()?;
    Ok(ReadRing::new(blocks, BLOCK))
}

impl MappedBlock {
    /// Submits a copy of whole words of a buffer, behind all earlier submissions and writes.
    pub(crate) fn start(&mut self, from: &wgpu::Buffer, at: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut staging = self.gpu.staging()?;
        let mut encoder = self.gpu.encoder();
        staging.encode(&mut encoder);
        encoder.copy_buffer_to_buffer(from, at, &self.buffer.raw, 0, bytes);
        let submitted = self.gpu.submit(encoder);
        staging.turn(&submitted);
        self.submitted = Some(submitted);
        self.gpu.check()
    }
}

impl ReadBlock for MappedBlock {
    fn take(&mut self, to: &mut [u8]) -> Result<(), DeviceError> {
        match self.submitted.take() {
            // The driver orders later copies to the block behind this one.
            Some(_) if to.is_empty() => Ok(()),
            Some(submitted) => read_mapped(&self.gpu, &self.buffer.raw, submitted, to),
            None => Err(self.gpu.lost_error("a block of staging memory was not written")),
        }
    }
}

/// Reads a mappable buffer after a submission.
pub(crate) fn read_mapped(
    gpu: &Gpu,
    buffer: &wgpu::Buffer,
    submitted: wgpu::SubmissionIndex,
    bytes: &mut [u8],
) -> Result<(), DeviceError> {
    let mapped = Arc::new(AtomicU8::new(PENDING));
    let slice = buffer.slice(..bytes.len() as u64);
    slice.map_async(wgpu::MapMode::Read, note(&mapped));
    gpu.wait(Some(submitted))?;
    if mapped.load(Ordering::Acquire) != MAPPED {
        return Err(gpu.lost_error("cannot map a buffer"));
    }
    let view = slice.get_mapped_range().map_err(|error| gpu.lost_error(&error.to_string()))?;
    bytes.copy_from_slice(&view);
    drop(view);
    buffer.unmap();
    Ok(())
}

fn note(state: &Arc<AtomicU8>) -> impl FnOnce(Result<(), wgpu::BufferAsyncError>) + Send + 'static {
    let state = Arc::clone(state);
    move |mapped| state.store(if mapped.is_ok() { MAPPED } else { FAILED }, Ordering::Release)
}

impl Block {
    fn map(&self) {
        self.state.store(PENDING, Ordering::Release);
        self.buffer.slice(..).map_async(wgpu::MapMode::Write, note(&self.state));
    }

    fn wait(&self, gpu: &Gpu) -> Result<(), DeviceError> {
        // The driver reports mappings only when it is polled.
        let is_pending = || self.state.load(Ordering::Acquire) == PENDING;
        if is_pending() && gpu.poll().is_ok() && is_pending() {
            gpu.wait(self.reader.clone())?;
        }
        match self.state.load(Ordering::Acquire) {
            MAPPED => gpu.check(),
            _ => Err(gpu.lost_error("cannot map a buffer")),
        }
    }
}
