//! Errors of planning.

use crate::{BufferId, ChunkOffset, Plan, Strategy};

/// The problem is invalid, or no plan was found within its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An alignment is not a power of two.
    #[error("{buffer} has alignment {align}, which is not a power of two")]
    BadAlign {
        /// The buffer.
        buffer: BufferId,
        /// Its alignment.
        align: u64,
    },
    /// A lifetime is empty.
    #[error("{buffer} has an empty lifetime: steps {start}..{end}")]
    EmptyLifetime {
        /// The buffer.
        buffer: BufferId,
        /// First step.
        start: u64,
        /// First step after its end.
        end: u64,
    },
    /// The sum of the footprints up to and including this buffer exceeds 64 bits.
    #[error("the sum of sizes overflows 64 bits at {buffer}")]
    SizesOverflow {
        /// The first buffer at which the sum overflows.
        buffer: BufferId,
    },
    /// A single buffer exceeds the capacity.
    #[error("{buffer} takes {footprint} bytes, more than the capacity of {capacity}")]
    LargerThanCapacity {
        /// The buffer.
        buffer: BufferId,
        /// Its size, rounded up to its alignment.
        footprint: u64,
        /// The problem's capacity.
        capacity: u64,
    },
    /// A fixed offset is not a multiple of the buffer's alignment.
    #[error("{buffer} is fixed at {place}, which is not a multiple of its alignment {align}")]
    FixedMisaligned {
        /// The buffer.
        buffer: BufferId,
        /// Its fixed offset.
        place: ChunkOffset,
        /// Its alignment.
        align: u64,
    },
    /// A fixed offset names a chunk beyond the limit.
    #[error("{buffer} is fixed at {place}, but the chunk number must be below {chunks}")]
    FixedChunk {
        /// The buffer.
        buffer: BufferId,
        /// Its fixed offset.
        place: ChunkOffset,
        /// Number of chunks that fixed offsets of this problem may use.
        chunks: usize,
    },
    /// A fixed buffer ends above the chunk limit, the capacity, or 64 bits.
    #[error("{buffer} is fixed at {place} with {footprint} bytes, which ends above {limit}")]
    FixedBeyond {
        /// The buffer.
        buffer: BufferId,
        /// Its fixed offset.
        place: ChunkOffset,
        /// Its size, rounded up to its alignment.
        footprint: u64,
        /// The highest end allowed.
        limit: u64,
    },
    /// Two fixed buffers share bytes while both are live.
    #[error("{first} and {second} are fixed at overlapping bytes while both are live")]
    FixedOverlap {
        /// The buffer that starts first.
        first: BufferId,
        /// The buffer that starts later.
        second: BufferId,
    },
    /// More buffers than 32-bit ids can name.
    #[error("a problem holds at most {} buffers", u32::MAX)]
    TooManyBuffers,
    /// The lower bound exceeds the capacity.
    #[error("{bound} bytes are live at one step, more than the capacity of {capacity}")]
    Impossible {
        /// The problem's capacity.
        capacity: u64,
        /// The lower bound on every plan.
        bound: u64,
        /// A minimal set of buffers that exceed the capacity together.
        together: Vec<BufferId>,
    },
    /// An exhaustive search proved that no plan fits the capacity, although the lower bound does.
    #[error("no plan fits the capacity of {capacity}: {} buffers cannot be placed together", .together.len())]
    NoPlan {
        /// The problem's capacity.
        capacity: u64,
        /// Buffers that have no plan within the capacity, even without the others.
        together: Vec<BufferId>,
    },
    /// A plan within the capacity may exist, but was not found.
    #[error("the best plan found takes {} bytes, more than the capacity of {capacity}", .best.peak)]
    OverCapacity {
        /// The problem's capacity.
        capacity: u64,
        /// The smallest plan found; valid apart from the capacity.
        best: Box<Plan>,
    },
    /// The plan needs offsets beyond 64 bits.
    #[error("strategy {strategy} needs offsets beyond 64 bits")]
    AddressesOverflow {
        /// The requested strategy.
        strategy: Strategy,
    },
    /// ggml's last chunk is unlimited, and it exceeds the problem's chunk limit.
    #[error("ggml's rule makes chunk {chunk} {height} bytes high, above the limit of {max_chunk}")]
    ChunkLimit {
        /// The chunk.
        chunk: u32,
        /// Its height.
        height: u64,
        /// The problem's limit.
        max_chunk: u64,
    },
}
