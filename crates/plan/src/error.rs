//! Why no plan came back.

use crate::{BufferId, ChunkOffset, Plan, Strategy};

/// Why a problem is refused, or has no plan within its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An alignment that is zero or no power of two.
    #[error("{buffer} has alignment {align}, which is not a power of two")]
    BadAlign {
        /// The buffer in question.
        buffer: BufferId,
        /// Its alignment.
        align: u64,
    },
    /// A lifetime that holds no step.
    #[error("{buffer} lives from step {start} to before step {end}, which is never")]
    EmptyLifetime {
        /// The buffer in question.
        buffer: BufferId,
        /// First step.
        start: u64,
        /// First step after.
        end: u64,
    },
    /// The footprints up to and including this buffer's add up to more than 64 bits hold.
    #[error("with {buffer}, the sizes add up to more than 64 bits can count")]
    SizesOverflow {
        /// The first buffer that is too much.
        buffer: BufferId,
    },
    /// A single buffer that does not fit the capacity.
    #[error("{buffer} takes {footprint} bytes, more than the capacity of {capacity}")]
    LargerThanCapacity {
        /// The buffer in question.
        buffer: BufferId,
        /// Its size, rounded up to its alignment.
        footprint: u64,
        /// The problem's capacity.
        capacity: u64,
    },
    /// A fixed offset that is no multiple of the buffer's alignment.
    #[error("{buffer} is fixed at {place}, which is not a multiple of its alignment {align}")]
    FixedMisaligned {
        /// The buffer in question.
        buffer: BufferId,
        /// Its fixed place.
        place: ChunkOffset,
        /// Its alignment.
        align: u64,
    },
    /// A fixed place in a chunk that the arena cannot have.
    #[error("{buffer} is fixed at {place}, but only {chunks} chunks may be named")]
    FixedChunk {
        /// The buffer in question.
        buffer: BufferId,
        /// Its fixed place.
        place: ChunkOffset,
        /// How many chunks fixed places of this problem may name.
        chunks: usize,
    },
    /// A fixed place that ends above the chunk limit, the capacity, or 64 bits.
    #[error("{buffer} is fixed at {place} with {footprint} bytes, which ends above {limit}")]
    FixedBeyond {
        /// The buffer in question.
        buffer: BufferId,
        /// Its fixed place.
        place: ChunkOffset,
        /// Its size, rounded up to its alignment.
        footprint: u64,
        /// The highest end allowed there.
        limit: u64,
    },
    /// Two buffers fixed on the same bytes at the same step.
    #[error("{first} and {second} are fixed on the same bytes while both are alive")]
    FixedOverlap {
        /// The one that is alive first.
        first: BufferId,
        /// The one that starts later.
        second: BufferId,
    },
    /// More buffers than 32-bit ids can name.
    #[error("a problem holds at most {} buffers", u32::MAX)]
    TooManyBuffers,
    /// No plan can be as small as the capacity.
    #[error("{bound} bytes are alive at one step, more than the capacity of {capacity}")]
    Impossible {
        /// The problem's capacity.
        capacity: u64,
        /// What no plan can be below.
        bound: u64,
        /// A few buffers that are too much together: leave one out, and the others are not.
        together: Vec<BufferId>,
    },
    /// No plan can be as small as the capacity, though at no step there are more bytes alive.
    #[error("no plan fits the capacity of {capacity}: {} buffers cannot be placed together", .together.len())]
    NoPlan {
        /// The problem's capacity.
        capacity: u64,
        /// Buffers for which there is no plan within the capacity, whatever becomes of the others.
        together: Vec<BufferId>,
    },
    /// A plan within the capacity may exist, but was not found.
    #[error("the best plan found takes {} bytes, more than the capacity of {capacity}", .best.peak)]
    OverCapacity {
        /// The problem's capacity.
        capacity: u64,
        /// The smallest plan found; legal but for the capacity.
        best: Box<Plan>,
    },
    /// Offsets beyond 64 bits would have been needed.
    #[error("strategy {strategy} finds no place for every buffer below 2^64")]
    AddressesOverflow {
        /// The strategy that was asked for.
        strategy: Strategy,
    },
    /// ggml's last chunk takes what is left without a limit, and that broke the problem's.
    #[error("ggml's rule makes chunk {chunk} {height} bytes high, above the limit of {max_chunk}")]
    ChunkLimit {
        /// The chunk in question.
        chunk: u32,
        /// Its height.
        height: u64,
        /// The problem's limit.
        max_chunk: u64,
    },
}
