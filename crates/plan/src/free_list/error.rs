//! Why a free list refuses a call. It is unchanged then.

use crate::ChunkOffset;

/// Why a [`FreeList`](crate::FreeList) refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeListError {
    /// An alignment that is zero or no power of two.
    #[error("alignment {align} is not a power of two")]
    BadAlign {
        /// The alignment asked for.
        align: u64,
    },
    /// No free block is large enough, and there can be no further chunk.
    #[error("no free block of {needed} bytes; the largest has {largest}")]
    OutOfSpace {
        /// Bytes asked for, rounded up to the alignment (`u64::MAX` where that cannot be counted).
        needed: u64,
        /// Size of the largest free block.
        largest: u64,
    },
    /// The range is not one that was handed out and is still held: a second release, a foreign place, or
    /// another size.
    #[error("{size} bytes at {place} are not allocated (allocated there: {found:?})")]
    NotAllocated {
        /// The place given.
        place: ChunkOffset,
        /// The size given, rounded up to the alignment where that can be counted.
        size: u64,
        /// Rounded size of the allocation that starts at this place, if there is one.
        found: Option<u64>,
    },
    /// A range can be made smaller in place, not larger.
    #[error("{old} bytes at {place} cannot shrink to {new}")]
    Grows {
        /// The place given.
        place: ChunkOffset,
        /// Its size.
        old: u64,
        /// The size asked for.
        new: u64,
    },
}
