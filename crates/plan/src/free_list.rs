//! The best-fit free list: allocates and releases offsets one by one.

mod chunk;
mod error;
mod rule;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::ChunkOffset;
use crate::round::round_up;
use chunk::{Change, Chunk};
pub use error::FreeListError;
pub use rule::ChunkRule;
use rule::{HoleIndex, TailKey};

/// A free block of a [`FreeList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBlock {
    /// Where the block starts.
    pub place: ChunkOffset,
    /// Its length in bytes.
    pub size: u64,
    /// Whether it is the tail of its chunk, above everything in use.
    pub tail: bool,
}

/// The extent of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// One chunk of this many bytes.
    Single(u64),
    /// Any number of chunks of this many bytes each; a larger request gets a chunk of its own size.
    Chunked(u64),
}

/// An online best-fit allocator of offsets, for lifetimes that are unknown in advance.
///
/// A request, rounded up to the alignment, takes the low end of the smallest hole that fits (the highest of
/// equals). If no hole fits, it takes the *tail*, the free end of a chunk. A released range merges with the
/// free space around it. Equal calls give equal offsets, and a region of the high-water mark of a run can
/// repeat that run. Every call takes time logarithmic in the number of blocks, which is unlimited;
/// [`ChunkRule`] describes the choice between chunks.
///
/// The list only computes offsets and touches no memory. It records every allocation and rejects releases
/// that do not match.
///
/// ```
/// use orlop_plan::FreeList;
/// let mut list = FreeList::unbounded(32)?;
/// let a = list.allocate(100)?;
/// let b = list.allocate(64)?;
/// list.release(a, 100)?;
/// let c = list.allocate(32)?;
/// assert_eq!((b.offset, c.offset), (128, 0)); // c reuses the low end of a
/// assert_eq!(list.high_water(), 192);
/// # Ok::<(), orlop_plan::FreeListError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FreeList {
    align: u64,
    region: Region,
    rule: ChunkRule,
    chunks: Vec<Chunk>,
    /// Holes by size: one index for all chunks, or under ggml's rule one for each.
    hole_indexes: Vec<HoleIndex>,
    /// The chunks' tails, for the rule that looks them up.
    tails: BTreeSet<TailKey>,
}

impl FreeList {
    /// One unlimited chunk.
    ///
    /// # Errors
    /// [`FreeListError::BadAlign`] if the alignment is not a power of two.
    pub fn unbounded(align: u64) -> Result<Self, FreeListError> {
        Self::new(align, Region::Single(u64::MAX), ChunkRule::Tightest)
    }

    /// One chunk of `bytes` bytes.
    ///
    /// # Errors
    /// [`FreeListError::BadAlign`] if the alignment is not a power of two.
    pub fn bounded(align: u64, bytes: u64) -> Result<Self, FreeListError> {
        Self::new(align, Region::Single(bytes), ChunkRule::Tightest)
    }

    /// Any number of chunks of `max_chunk` bytes; a larger request opens a chunk of its own size.
    ///
    /// # Errors
    /// [`FreeListError::BadAlign`] if the alignment is not a power of two.
    pub fn chunked(align: u64, max_chunk: u64, rule: ChunkRule) -> Result<Self, FreeListError> {
        Self::new(align, Region::Chunked(max_chunk), rule)
    }

    fn new(align: u64, region: Region, rule: ChunkRule) -> Result<Self, FreeListError> {
        if !align.is_power_of_two() {
            return Err(FreeListError::BadAlign { align });
        }
        let mut list =
            Self { align, region, rule, chunks: vec![], hole_indexes: vec![], tails: BTreeSet::new() };
        list.reset();
        Ok(list)
    }

    /// Allocates `size` bytes.
    ///
    /// An empty request gets the start of the smallest hole, or of a tail if there is none, and occupies
    /// nothing: the next request may get the same offset.
    ///
    /// # Errors
    /// [`FreeListError::OutOfSpace`] when no block is large enough and no chunk can be opened.
    pub fn allocate(&mut self, size: u64) -> Result<ChunkOffset, FreeListError> {
        let Some(footprint) = round_up(size, self.align) else {
            return Err(FreeListError::OutOfSpace { needed: u64::MAX, largest: self.largest_free() });
        };
        self.take(footprint, self.align)
    }

    /// Releases what [`allocate`](Self::allocate) returned for the same size. An empty release does nothing.
    ///
    /// # Errors
    /// [`FreeListError::NotAllocated`] if no such range is allocated.
    pub fn release(&mut self, place: ChunkOffset, size: u64) -> Result<(), FreeListError> {
        self.shrink(place, size, 0)
    }

    /// Shrinks a range from `old` to `new` bytes, both rounded up to the alignment, by releasing its end.
    ///
    /// # Errors
    /// [`FreeListError::Grows`] when `new` is above `old`, [`FreeListError::NotAllocated`] if no range of
    /// `old` bytes is allocated at `place`.
    pub fn shrink(&mut self, place: ChunkOffset, old: u64, new: u64) -> Result<(), FreeListError> {
        if new > old {
            return Err(FreeListError::Grows { place, old, new });
        }
        let held = round_up(old, self.align);
        let keep = round_up(new, self.align);
        match (held, keep) {
            (Some(held), Some(keep)) => self.give(place, held, keep),
            _ => Err(FreeListError::NotAllocated { place, size: old, found: self.held_at(place) }),
        }
    }

    /// Releases everything and resets the high-water marks.
    pub fn reset(&mut self) {
        self.chunks.clear();
        self.hole_indexes.clear();
        self.tails.clear();
        if let Region::Single(bytes) = self.region {
            self.push_chunk(bytes);
        }
    }

    /// The alignment of every request and offset.
    pub fn align(&self) -> u64 {
        self.align
    }

    /// Number of open chunks.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Bytes that the arena needs: the sum of the chunks' high-water marks.
    pub fn high_water(&self) -> u64 {
        self.high_waters().fold(0, u64::saturating_add)
    }

    /// Per chunk, the highest end of a range since the last reset.
    pub fn high_waters(&self) -> impl ExactSizeIterator<Item = u64> {
        self.chunks.iter().map(|chunk| chunk.high_water)
    }

    /// The free blocks of the open chunks in ascending order, without empty tails.
    pub fn free_blocks(&self) -> impl Iterator<Item = FreeBlock> {
        (0u32..).zip(&self.chunks).flat_map(|(chunk, state)| {
            let at = move |offset, size, tail| FreeBlock { place: ChunkOffset { chunk, offset }, size, tail };
            let tail = (state.tail_room() > 0).then(|| at(state.tail, state.tail_room(), true));
            state.holes().map(move |(start, len)| at(start, len, false)).chain(tail)
        })
    }

    /// The size of the largest free block of the open chunks.
    pub fn largest_free(&self) -> u64 {
        let holes = self.hole_indexes.iter().filter_map(|index| index.last()).map(|(size, _)| *size);
        let tails = self.chunks.iter().map(Chunk::tail_room);
        holes.chain(tails).max().unwrap_or(0)
    }

    /// Allocates `footprint` bytes at a multiple of `align`, which may differ from the list's own.
    pub(crate) fn take(&mut self, footprint: u64, align: u64) -> Result<ChunkOffset, FreeListError> {
        if let Some(place) = self.find(footprint, align) {
            if footprint > 0 {
                self.mark_used(place, footprint);
            }
            return Ok(place);
        }
        if footprint == 0 {
            return Ok(ChunkOffset::default());
        }
        let place = self
            .open_chunk(footprint)
            .ok_or_else(|| FreeListError::OutOfSpace { needed: footprint, largest: self.largest_free() })?;
        self.mark_used(place, footprint);
        Ok(place)
    }

    /// Allocates exactly these bytes, if they are free in an open chunk.
    pub(crate) fn claim(&mut self, place: ChunkOffset, footprint: u64) -> bool {
        let free = self.chunks.get(place.chunk as usize).is_some_and(|c| c.is_free(place.offset, footprint));
        if free && footprint > 0 {
            self.mark_used(place, footprint);
        }
        free
    }

    /// Releases the upper end of a used range; `keep` bytes of `footprint` stay.
    pub(crate) fn give(
        &mut self,
        place: ChunkOffset,
        footprint: u64,
        keep: u64,
    ) -> Result<(), FreeListError> {
        if footprint == 0 {
            return Ok(());
        }
        let found = self.held_at(place);
        if found != Some(footprint) {
            return Err(FreeListError::NotAllocated { place, size: footprint, found });
        }
        if keep < footprint {
            self.change(place.chunk, |chunk| chunk.give(place.offset, footprint, keep));
        }
        Ok(())
    }

    /// Opens a chunk of at least `footprint` bytes; `None` at the limit.
    pub(crate) fn open_chunk(&mut self, footprint: u64) -> Option<ChunkOffset> {
        let Region::Chunked(max_chunk) = self.region else { return None };
        let capacity = self.rule.chunk_capacity(self.chunks.len(), footprint.max(max_chunk))?;
        let chunk = u32::try_from(self.chunks.len()).ok()?;
        self.push_chunk(capacity);
        Some(ChunkOffset { chunk, offset: 0 })
    }

    fn held_at(&self, place: ChunkOffset) -> Option<u64> {
        self.chunks.get(place.chunk as usize)?.used_at(place.offset)
    }

    fn push_chunk(&mut self, capacity: u64) {
        let number = self.chunks.len() as u32;
        let chunk = Chunk::new(capacity);
        if self.rule == ChunkRule::Tightest {
            self.tails.insert(TailKey::of(number, &chunk));
        }
        self.chunks.push(chunk);
        if self.hole_indexes.is_empty() || self.rule == ChunkRule::Ggml {
            self.hole_indexes.push(HoleIndex::new());
        }
    }

    fn mark_used(&mut self, place: ChunkOffset, footprint: u64) {
        self.change(place.chunk, |chunk| chunk.take(place.offset, footprint));
    }

    /// Changes one chunk and updates the indexes.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut Chunk) -> Change) {
        let index = match self.rule {
            ChunkRule::Tightest => 0,
            ChunkRule::Ggml => number as usize,
        };
        let (Some(chunk), Some(index)) =
            (self.chunks.get_mut(number as usize), self.hole_indexes.get_mut(index))
        else {
            return;
        };
        let tail = TailKey::of(number, chunk);
        let Change { closed, opened } = change(chunk);
        let moved = TailKey::of(number, chunk);
        if self.rule == ChunkRule::Tightest && moved != tail {
            self.tails.remove(&tail);
            self.tails.insert(moved);
        }
        let key = |(offset, size)| (size, Reverse(ChunkOffset { chunk: number, offset }));
        for hole in closed.into_iter().flatten() {
            index.remove(&key(hole));
        }
        index.extend(opened.into_iter().flatten().map(key));
    }
}
