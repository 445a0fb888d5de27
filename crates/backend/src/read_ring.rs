//! Reads through a ring of staging blocks: memory of a fixed size, however much is read and however late it is taken.
//!
//! A read takes blocks in the ring's order. The block that comes next is emptied first: its bytes go to host memory of the read
//! that they belong to. So only a read that finds the ring full waits, and only for the oldest piece in it.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::copy::host_memory;
use crate::{DeviceError, ReadBytes};

/// A block of staging memory that a device writes and the host reads.
pub trait ReadBlock: Send {
    /// Waits until the device has written what it was told to, and copies the first bytes of it. The block is free then, even
    /// after an error.
    ///
    /// # Errors
    /// What the device met.
    fn take(&mut self, to: &mut [u8]) -> Result<(), DeviceError>;
}

/// A ring of blocks. Clones share it.
pub struct ReadRing<B> {
    ring: Arc<Mutex<Ring<B>>>,
    block_bytes: u64,
}

struct Ring<B> {
    blocks: Vec<Block<B>>,
    next: usize,
}

struct Block<B> {
    staging: B,
    /// What it holds until it is emptied.
    piece: Option<Piece>,
}

struct Piece {
    read: Weak<ReadMemory>,
    range: Range<usize>,
}

/// The memory that a read's pieces are moved to, or the first error of one.
type ReadMemory = Mutex<Result<Vec<u8>, DeviceError>>;

/// Bytes of a read, in staging memory or moved out of it.
pub struct StagedRead<B> {
    ring: ReadRing<B>,
    memory: Arc<ReadMemory>,
    range: Range<usize>,
}

impl<B: ReadBlock> ReadRing<B> {
    /// A ring of at least one block, of `block_bytes` each.
    pub fn new(blocks: impl IntoIterator<Item = B>, block_bytes: u64) -> ReadRing<B> {
        let blocks: Vec<_> = blocks.into_iter().map(|staging| Block { staging, piece: None }).collect();
        assert!(!blocks.is_empty() && block_bytes > 0, "a ring without memory");
        ReadRing { ring: Arc::new(Mutex::new(Ring { blocks, next: 0 })), block_bytes }
    }

    /// Starts a read in pieces: `start` tells the device to copy a range of the read to the beginning of a free block.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], and what `start` returns; then the read is given up.
    pub fn read(
        &self,
        bytes: u64,
        mut start: impl FnMut(&mut B, Range<u64>) -> Result<(), DeviceError>,
    ) -> Result<StagedRead<B>, DeviceError> {
        let memory = Arc::new(Mutex::new(Ok(host_memory(bytes)?)));
        let mut done = 0;
        while done < bytes {
            let range = done..bytes.min(done + self.block_bytes);
            let mut ring = self.lock();
            let block = ring.next_free();
            start(&mut block.staging, range.clone())?;
            let read = Arc::downgrade(&memory);
            block.piece = Some(Piece { read, range: range.start as usize..range.end as usize });
            done = range.end;
        }
        Ok(StagedRead { ring: self.clone(), memory, range: 0..bytes as usize })
    }

    fn lock(&self) -> MutexGuard<'_, Ring<B>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: ReadBlock> Ring<B> {
    /// The block that was used longest ago, emptied.
    fn next_free(&mut self) -> &mut Block<B> {
        let next = self.next;
        self.next = (next + 1) % self.blocks.len();
        self.blocks[next].empty();
        &mut self.blocks[next]
    }
}

impl<B: ReadBlock> Block<B> {
    /// Moves what it holds to the read that this belongs to.
    fn empty(&mut self) {
        let Some(Piece { read, range }) = self.piece.take() else { return };
        let Some(memory) = read.upgrade() else {
            // A read that was dropped gets no error either; a lost device reports its own at the next use.
            let _ = self.staging.take(&mut []);
            return;
        };
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match &mut *memory {
            Ok(bytes) => self.staging.take(&mut bytes[range]),
            Err(_) => self.staging.take(&mut []),
        };
        if let Err(error) = taken
            && memory.is_ok()
        {
            *memory = Err(error);
        }
    }
}

impl<B> StagedRead<B> {
    /// A part of the read, for devices that read more than was asked for.
    pub fn part(mut self, part: Range<usize>) -> StagedRead<B> {
        self.range = self.range.start + part.start..self.range.start + part.end;
        self
    }
}

impl<B: ReadBlock> ReadBytes for StagedRead<B> {
    fn bytes(&self) -> u64 {
        self.range.len() as u64
    }

    fn copy_to(&self, to: &mut [u8]) -> Result<(), DeviceError> {
        let mut ring = self.ring.lock();
        for block in &mut ring.blocks {
            let own = |piece: &Piece| std::ptr::eq(piece.read.as_ptr(), Arc::as_ptr(&self.memory));
            if block.piece.as_ref().is_some_and(own) {
                block.empty();
            }
        }
        drop(ring);
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = memory.as_ref().map_err(Clone::clone)?;
        to.copy_from_slice(&bytes[self.range.clone()]);
        Ok(())
    }
}

impl<B> Clone for ReadRing<B> {
    fn clone(&self) -> ReadRing<B> {
        ReadRing { ring: Arc::clone(&self.ring), block_bytes: self.block_bytes }
    }
}

impl<B> fmt::Debug for ReadRing<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRing").field("block_bytes", &self.block_bytes).finish_non_exhaustive()
    }
}
