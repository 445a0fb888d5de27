//! The input of planning: buffers with sizes, alignments and lifetimes.

use std::fmt;
use std::ops::Range;

use crate::PlanError;
use crate::round::round_up;

/// A buffer of one [`Problem`]: dense, `Copy`, four bytes, prints as `b17`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BufferId(u32);

impl BufferId {
    /// Index into [`Problem::buffers`], [`Plan::places`](crate::Plan::places) and side tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The id of position `index`, if it fits 32 bits.
    pub(crate) fn at(index: usize) -> Option<Self> {
        u32::try_from(index).ok().map(Self)
    }
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl fmt::Debug for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An offset in an arena of one or several chunks. Prints as `chunk:offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ChunkOffset {
    /// The chunk, counted from 0.
    pub chunk: u32,
    /// Bytes from the chunk's start.
    pub offset: u64,
}

impl fmt::Display for ChunkOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.chunk, self.offset)
    }
}

/// A buffer to place: size, alignment and lifetime.
///
/// A buffer occupies its *footprint*: its size rounded up to its own alignment. The bound, chunk heights and
/// [`verify`](crate::verify) count footprints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BufferSpec {
    /// Bytes. An empty buffer conflicts with nothing and is placed at `0:0`.
    pub size: u64,
    /// Alignment of the offset, a power of two.
    pub align: u64,
    /// Steps at which the buffer is live, half-open. Never empty.
    pub live: Range<u64>,
    /// A fixed offset; `None`: chosen by the planner.
    pub fixed: Option<ChunkOffset>,
}

impl BufferSpec {
    /// A buffer whose offset the planner chooses.
    pub fn new(size: u64, align: u64, live: Range<u64>) -> Self {
        Self { size, align, live, fixed: None }
    }

    /// The same buffer, fixed at `place`.
    pub fn fixed_at(self, place: ChunkOffset) -> Self {
        Self { fixed: Some(place), ..self }
    }

    /// The size rounded up to the alignment; `None` on overflow or if the alignment is not a power of two.
    pub fn footprint(&self) -> Option<u64> {
        if self.align.is_power_of_two() { round_up(self.size, self.align) } else { None }
    }
}

/// Buffers to place, and the limits of the arena.
///
/// Without `max_chunk` the arena is one chunk. With it, the arena has any number of chunks, and each buffer
/// lies within one of them. A chunk is at most as high as `max_chunk` or as its largest buffer, whichever is
/// more. A chunk above `max_chunk` is reported as oversize; the caller decides whether to allocate it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Problem {
    /// The buffers, indexed by [`BufferId`].
    pub buffers: Vec<BufferSpec>,
    /// Limit on the sum of the chunk heights. `None`: minimize it.
    pub capacity: Option<u64>,
    /// Limit on the height of a chunk. `None`: one chunk of any height.
    pub max_chunk: Option<u64>,
}

/// Fixed offsets may use this many chunks, or as many as there are buffers if that is more. Chunks are dense,
/// so the limit bounds the memory of a plan.
const FIXED_CHUNKS: usize = 1 << 16;

impl Problem {
    /// Checks a buffer by itself and adds it.
    ///
    /// # Errors
    /// [`PlanError::BadAlign`], [`PlanError::EmptyLifetime`], [`PlanError::SizesOverflow`] when the
    /// footprint exceeds `u64`, and [`PlanError::TooManyBuffers`] past the last 32-bit id. On error the
    /// problem is unchanged.
    pub fn push(&mut self, buffer: BufferSpec) -> Result<BufferId, PlanError> {
        let id = BufferId::at(self.buffers.len()).ok_or(PlanError::TooManyBuffers)?;
        check_alone(id, &buffer)?;
        self.buffers.push(buffer);
        Ok(id)
    }

    /// The id of the buffer at position `index`.
    pub fn id(&self, index: usize) -> Option<BufferId> {
        if index < self.buffers.len() { BufferId::at(index) } else { None }
    }

    /// The buffers with their ids, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (BufferId, &BufferSpec)> {
        self.buffers.iter().enumerate().map(|(index, buffer)| (BufferId(index as u32), buffer))
    }

    /// Checks that the problem is valid. [`solve`](crate::solve) calls it first.
    ///
    /// # Errors
    /// One variant of [`PlanError`] per cause; equal problems give equal errors.
    pub fn validate(&self) -> Result<(), PlanError> {
        if BufferId::at(self.buffers.len()).is_none() {
            return Err(PlanError::TooManyBuffers);
        }
        let mut sum: u64 = 0;
        for (id, buffer) in self.iter() {
            let footprint = check_alone(id, buffer)?;
            sum = sum.checked_add(footprint).ok_or(PlanError::SizesOverflow { buffer: id })?;
            if let Some(capacity) = self.capacity
                && footprint > capacity
            {
                return Err(PlanError::LargerThanCapacity { buffer: id, footprint, capacity });
            }
            if let Some(place) = buffer.fixed {
                self.check_fixed(id, buffer, footprint, place)?;
            }
        }
        check_fixed_overlaps(self)
    }

    fn check_fixed(
        &self,
        id: BufferId,
        buffer: &BufferSpec,
        footprint: u64,
        place: ChunkOffset,
    ) -> Result<(), PlanError> {
        if !place.offset.is_multiple_of(buffer.align) {
            return Err(PlanError::FixedMisaligned { buffer: id, place, align: buffer.align });
        }
        let chunks = match self.max_chunk {
            Some(_) => self.buffers.len().max(FIXED_CHUNKS),
            None => 1,
        };
        if place.chunk as usize >= chunks {
            return Err(PlanError::FixedChunk { buffer: id, place, chunks });
        }
        // A buffer above the chunk limit may be fixed at offset 0 of a chunk of its own height.
        let chunk_limit = self.max_chunk.map_or(u64::MAX, |max| max.max(footprint));
        let limit = chunk_limit.min(self.capacity.unwrap_or(u64::MAX));
        match place.offset.checked_add(footprint) {
            Some(end) if footprint == 0 || end <= limit => Ok(()),
            _ => Err(PlanError::FixedBeyond { buffer: id, place, footprint, limit }),
        }
    }
}

/// Checks a buffer by itself and returns its footprint.
fn check_alone(id: BufferId, buffer: &BufferSpec) -> Result<u64, PlanError> {
    if !buffer.align.is_power_of_two() {
        return Err(PlanError::BadAlign { buffer: id, align: buffer.align });
    }
    if buffer.live.is_empty() {
        return Err(PlanError::EmptyLifetime { buffer: id, start: buffer.live.start, end: buffer.live.end });
    }
    buffer.footprint().ok_or(PlanError::SizesOverflow { buffer: id })
}

/// Rejects fixed buffers that overlap in bytes and steps.
///
/// A sweep over the steps keeps the live fixed buffers by offset. They are disjoint, so a new buffer can only
/// overlap its two neighbours.
fn check_fixed_overlaps(problem: &Problem) -> Result<(), PlanError> {
    use std::collections::BTreeMap;

    let mut fixed: Vec<(BufferId, &BufferSpec, ChunkOffset, u64)> = problem
        .iter()
        .filter(|(_, buffer)| buffer.size > 0)
        .filter_map(|(id, buffer)| Some((id, buffer, buffer.fixed?, buffer.footprint()?)))
        .collect();
    fixed.sort_by_key(|(id, buffer, ..)| (buffer.live.start, *id));
    let mut ends: Vec<(u64, ChunkOffset)> =
        fixed.iter().map(|(_, b, place, _)| (b.live.end, *place)).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut alive: BTreeMap<ChunkOffset, (u64, BufferId)> = BTreeMap::new();
    for (id, buffer, place, footprint) in fixed {
        while let Some((_, gone)) = ends.next_if(|(end, _)| *end <= buffer.live.start) {
            alive.remove(&gone);
        }
        let end = place.offset + footprint;
        let below = alive.range(..=place).next_back();
        let above = alive.range(place..).next();
        let hit = match (below, above) {
            (Some((p, (top, other))), _) if p.chunk == place.chunk && *top > place.offset => Some(*other),
            (_, Some((p, (_, other)))) if p.chunk == place.chunk && p.offset < end => Some(*other),
            _ => None,
        };
        if let Some(other) = hit {
            return Err(PlanError::FixedOverlap { first: other, second: id });
        }
        alive.insert(place, (end, id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(buffers: Vec<BufferSpec>) -> Problem {
        Problem { buffers, ..Problem::default() }
    }

    fn at(chunk: u32, offset: u64) -> ChunkOffset {
        ChunkOffset { chunk, offset }
    }

    fn id(index: usize) -> BufferId {
        BufferId::at(index).unwrap()
    }

    #[test]
    fn ids_and_places_print_short() {
        assert_eq!(format!("{} {:?} {}", id(17), id(3), at(2, 64)), "b17 b3 2:64");
    }

    #[test]
    fn alignments_are_powers_of_two() {
        for align in [0, 3, 48] {
            let mut p = Problem::default();
            let err = p.push(BufferSpec::new(8, align, 0..1)).unwrap_err();
            assert_eq!(err, PlanError::BadAlign { buffer: id(0), align });
            assert!(p.buffers.is_empty());
            assert_eq!(problem(vec![BufferSpec::new(8, align, 0..1)]).validate(), Err(err));
        }
    }

    #[test]
    #[allow(clippy::reversed_empty_ranges)]
    fn lifetimes_hold_at_least_one_step() {
        for live in [4..4, 5..4] {
            let err = problem(vec![BufferSpec::new(8, 1, live.clone())]).validate().unwrap_err();
            assert_eq!(err, PlanError::EmptyLifetime { buffer: id(0), start: live.start, end: 4 });
        }
    }

    #[test]
    fn sizes_near_the_end_of_64_bits_are_refused() {
        let alone = problem(vec![BufferSpec::new(u64::MAX, 2, 0..1)]);
        assert_eq!(alone.validate(), Err(PlanError::SizesOverflow { buffer: id(0) }));
        let together = problem(vec![BufferSpec::new(u64::MAX, 1, 0..1), BufferSpec::new(1, 1, 5..6)]);
        assert_eq!(together.validate(), Err(PlanError::SizesOverflow { buffer: id(1) }));
        assert_eq!(problem(vec![BufferSpec::new(u64::MAX, 1, 0..1)]).validate(), Ok(()));
    }

    #[test]
    fn a_buffer_above_the_capacity_is_named() {
        let p = Problem { capacity: Some(99), ..problem(vec![BufferSpec::new(65, 64, 0..1)]) };
        let err = PlanError::LargerThanCapacity { buffer: id(0), footprint: 128, capacity: 99 };
        assert_eq!(p.validate(), Err(err));
    }

    #[test]
    fn fixed_places_are_aligned_and_inside() {
        let fixed = |place| problem(vec![BufferSpec::new(64, 64, 0..1).fixed_at(place)]);
        let buffer = id(0);
        assert_eq!(
            fixed(at(0, 32)).validate(),
            Err(PlanError::FixedMisaligned { buffer, place: at(0, 32), align: 64 })
        );
        assert_eq!(
            fixed(at(1, 0)).validate(),
            Err(PlanError::FixedChunk { buffer, place: at(1, 0), chunks: 1 })
        );
        let tight = Problem { capacity: Some(100), ..fixed(at(0, 64)) };
        let beyond = PlanError::FixedBeyond { buffer, place: at(0, 64), footprint: 64, limit: 100 };
        assert_eq!(tight.validate(), Err(beyond));
        let chunked = Problem { max_chunk: Some(100), ..fixed(at(3, 64)) };
        let beyond = PlanError::FixedBeyond { buffer, place: at(3, 64), footprint: 64, limit: 100 };
        assert_eq!(chunked.validate(), Err(beyond));
        let top = u64::MAX - 63;
        let wraps = PlanError::FixedBeyond { buffer, place: at(0, top), footprint: 64, limit: u64::MAX };
        assert_eq!(fixed(at(0, top)).validate(), Err(wraps));
    }

    #[test]
    fn an_oversize_buffer_may_be_fixed_only_at_the_foot_of_a_chunk() {
        let fixed = |offset| Problem {
            max_chunk: Some(100),
            ..problem(vec![BufferSpec::new(200, 1, 0..1).fixed_at(at(2, offset))])
        };
        assert_eq!(fixed(0).validate(), Ok(()));
        assert!(matches!(fixed(1).validate(), Err(PlanError::FixedBeyond { limit: 200, .. })));
    }

    #[test]
    fn fixed_places_that_collide_are_named_in_order_of_time() {
        let early = BufferSpec::new(64, 1, 0..5).fixed_at(at(0, 0));
        let late = BufferSpec::new(64, 1, 4..9).fixed_at(at(0, 63));
        let err = problem(vec![late.clone(), early.clone()]).validate().unwrap_err();
        assert_eq!(err, PlanError::FixedOverlap { first: id(1), second: id(0) });
        let later = BufferSpec { live: 5..9, ..late };
        assert_eq!(problem(vec![later, early]).validate(), Ok(()));
    }

    #[test]
    fn empty_buffers_may_share_a_fixed_place() {
        let empty = BufferSpec::new(0, 8, 0..5).fixed_at(at(0, 8));
        let full = BufferSpec::new(8, 8, 0..5).fixed_at(at(0, 8));
        assert_eq!(problem(vec![empty.clone(), full, empty]).validate(), Ok(()));
    }
}
