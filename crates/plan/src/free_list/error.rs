//! Errors of the free list.

use crate::ChunkOffset;

/// An error of a [`FreeList`](crate::FreeList), which it leaves unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeListError {
    /// The alignment is not a power of two.
    #[error("alignment {align} is not a power of two")]
    BadAlign {
        /// The alignment.
        align: u64,
    },
    /// No free block is large enough, and no chunk can be opened.
    #[error("no free block of {needed} bytes; the largest has {largest}")]
    OutOfSpace {
        /// Bytes requested, rounded up to the alignment (`u64::MAX` on overflow).
        needed: u64,
        /// Size of the largest free block.
        largest: u64,
    },
    /// The range is not allocated: a double free, a wrong offset, or a wrong size.
    #[error("{size} bytes at {place} are not allocated (allocated there: {found:?})")]
    NotAllocated {
        /// The given offset.
        place: ChunkOffset,
        /// The given size, rounded up to the alignment unless that overflows.
        size: u64,
        /// Rounded size of the allocation that starts at this offset, if there is one.
        found: Option<u64>,
    },
    /// A range can shrink in place, but not grow.
    #[error("{old} bytes at {place} cannot shrink to {new}")]
    Grows {
        /// The given offset.
        place: ChunkOffset,
        /// Its size.
        old: u64,
        /// The requested size.
        new: u64,
    },
}
