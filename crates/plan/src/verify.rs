//! Independent check of a plan.

use std::collections::BTreeMap;

use crate::{BufferId, ChunkOffset, Plan, Problem};

/// A rule that a plan violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The plan has a different number of buffers.
    #[error("the plan places {found} buffers, the problem has {expected}")]
    Count {
        /// Buffers of the problem.
        expected: usize,
        /// Offsets in the plan.
        found: usize,
    },
    /// The problem is invalid: an alignment that is not a power of two, an empty lifetime, or a footprint
    /// beyond 64 bits.
    #[error("{buffer} of the problem has an invalid alignment, lifetime or size")]
    Unsound {
        /// The buffer.
        buffer: BufferId,
    },
    /// An offset is not a multiple of the buffer's alignment.
    #[error("{buffer} at {place} is not aligned to {align}")]
    Misaligned {
        /// The buffer.
        buffer: BufferId,
        /// Its offset.
        place: ChunkOffset,
        /// Its alignment.
        align: u64,
    },
    /// A fixed buffer has another offset.
    #[error("{buffer} is at {place} but fixed at {fixed}")]
    Moved {
        /// The buffer.
        buffer: BufferId,
        /// Its offset.
        place: ChunkOffset,
        /// Its fixed offset.
        fixed: ChunkOffset,
    },
    /// An offset names a chunk that the plan or the problem does not have.
    #[error("{buffer} is at {place}, but there are {chunks} chunks")]
    NoSuchChunk {
        /// The buffer.
        buffer: BufferId,
        /// Its offset.
        place: ChunkOffset,
        /// Number of chunks.
        chunks: usize,
    },
    /// A buffer ends above its chunk's reported height.
    #[error("{buffer} at {place} with {footprint} bytes ends above its chunk's height {height}")]
    Outside {
        /// The buffer.
        buffer: BufferId,
        /// Its offset.
        place: ChunkOffset,
        /// Its footprint.
        footprint: u64,
        /// Reported height of the chunk.
        height: u64,
    },
    /// Two buffers share bytes at a step.
    #[error(
        "{first} ({first_bytes} bytes at {first_place}) and {second} ({second_bytes} bytes at \
         {second_place}) overlap at step {step}"
    )]
    Overlap {
        /// The buffer that starts first.
        first: BufferId,
        /// Its offset.
        first_place: ChunkOffset,
        /// Its footprint.
        first_bytes: u64,
        /// The buffer that starts at `step`.
        second: BufferId,
        /// Its offset.
        second_place: ChunkOffset,
        /// Its footprint.
        second_bytes: u64,
        /// The first step at which both are live.
        step: u64,
    },
    /// A chunk's height differs from the reported one.
    #[error("chunk {chunk} is {actual} bytes high, not {reported}")]
    Height {
        /// The chunk.
        chunk: u32,
        /// Height according to the plan.
        reported: u64,
        /// Highest end of a buffer in it.
        actual: u64,
    },
    /// A chunk is above the limit and above its largest buffer.
    #[error("chunk {chunk} is {height} bytes high, above the limit of {max_chunk}")]
    ChunkTooHigh {
        /// The chunk.
        chunk: u32,
        /// Its height.
        height: u64,
        /// The problem's limit.
        max_chunk: u64,
    },
    /// The list of oversize chunks is wrong.
    #[error("chunks {actual:?} are above the limit, the plan says {reported:?}")]
    Oversize {
        /// The plan's list.
        reported: Vec<u32>,
        /// The chunks above the limit.
        actual: Vec<u32>,
    },
    /// The peak is not the sum of the chunk heights.
    #[error("the chunks add up to {actual:?} bytes, the plan says {reported}")]
    Peak {
        /// Peak according to the plan.
        reported: u64,
        /// Sum of the chunk heights; `None` beyond 64 bits.
        actual: Option<u64>,
    },
    /// The peak is above the problem's capacity.
    #[error("the peak of {peak} bytes is above the capacity of {capacity}")]
    OverCapacity {
        /// The plan's peak.
        peak: u64,
        /// The problem's capacity.
        capacity: u64,
    },
    /// The bound is above the peak, or below the bytes live at one step.
    #[error(
        "the bound of {bound} bytes is not between the {alive} bytes live at one step and the peak of {peak}"
    )]
    Bound {
        /// The plan's bound.
        bound: u64,
        /// The plan's peak.
        peak: u64,
        /// Most bytes live at one step.
        alive: u64,
    },
}

/// Checks that a plan is valid and that its numbers are right: every rule that [`solve`](crate::solve)
/// promises, by a sweep over the steps in `O(n log n)` time.
///
/// It shares no code with the solvers. `strategy`, `work` and `optimal` are not checked.
///
/// # Errors
/// The first [`Violation`] found; equal input gives equal results.
pub fn verify(problem: &Problem, plan: &Plan) -> Result<(), Violation> {
    if problem.buffers.len() != plan.places.len() {
        return Err(Violation::Count { expected: problem.buffers.len(), found: plan.places.len() });
    }
    let footprints = check_each(problem, plan)?;
    check_chunks(problem, plan, &footprints)?;
    let alive = sweep(problem, plan, &footprints)?;
    if plan.bound > plan.peak || plan.bound < alive {
        return Err(Violation::Bound { bound: plan.bound, peak: plan.peak, alive });
    }
    match problem.capacity {
        Some(capacity) if plan.peak > capacity => Err(Violation::OverCapacity { peak: plan.peak, capacity }),
        _ => Ok(()),
    }
}

/// Checks each buffer and its offset. Returns the footprints.
fn check_each(problem: &Problem, plan: &Plan) -> Result<Vec<u64>, Violation> {
    let allowed = if problem.max_chunk.is_some() { plan.chunks.len() } else { plan.chunks.len().min(1) };
    let mut footprints = Vec::with_capacity(plan.places.len());
    for ((id, buffer), &place) in problem.iter().zip(&plan.places) {
        let unsound = Violation::Unsound { buffer: id };
        if buffer.align.count_ones() != 1 || buffer.live.start >= buffer.live.end {
            return Err(unsound);
        }
        let footprint = buffer.size.div_ceil(buffer.align).checked_mul(buffer.align).ok_or(unsound)?;
        if place.offset % buffer.align != 0 {
            return Err(Violation::Misaligned { buffer: id, place, align: buffer.align });
        }
        if let Some(fixed) = buffer.fixed.filter(|fixed| *fixed != place) {
            return Err(Violation::Moved { buffer: id, place, fixed });
        }
        let Some(&height) = plan.chunks[..allowed].get(place.chunk as usize) else {
            return Err(Violation::NoSuchChunk { buffer: id, place, chunks: allowed });
        };
        let inside = place.offset.checked_add(footprint).is_some_and(|end| end <= height);
        if footprint > 0 && !inside {
            return Err(Violation::Outside { buffer: id, place, footprint, height });
        }
        footprints.push(footprint);
    }
    Ok(footprints)
}

/// Checks heights, the chunk limit, and the peak. Every buffer is inside its chunk.
fn check_chunks(problem: &Problem, plan: &Plan, footprints: &[u64]) -> Result<(), Violation> {
    let mut tops = vec![(0u64, 0u64); plan.chunks.len()];
    for (place, bytes) in plan.places.iter().zip(footprints).filter(|(_, bytes)| **bytes > 0) {
        let (top, largest) = &mut tops[place.chunk as usize];
        *top = (*top).max(place.offset + bytes);
        *largest = (*largest).max(*bytes);
    }
    let mut oversize = vec![];
    for ((chunk, &reported), &(actual, largest)) in (0u32..).zip(&plan.chunks).zip(&tops) {
        if reported != actual {
            return Err(Violation::Height { chunk, reported, actual });
        }
        if let Some(max_chunk) = problem.max_chunk.filter(|max| actual > *max) {
            if actual > largest {
                return Err(Violation::ChunkTooHigh { chunk, height: actual, max_chunk });
            }
            oversize.push(chunk);
        }
    }
    if oversize != plan.oversize {
        return Err(Violation::Oversize { reported: plan.oversize.clone(), actual: oversize });
    }
    let actual = plan.chunks.iter().try_fold(0u64, |sum, height| sum.checked_add(*height));
    if actual != Some(plan.peak) {
        return Err(Violation::Peak { reported: plan.peak, actual });
    }
    Ok(())
}

/// Sweeps over the steps and keeps the live buffers by offset. They are disjoint, so a new buffer can only
/// overlap its two neighbours. Returns the most bytes live at one step.
fn sweep(problem: &Problem, plan: &Plan, footprints: &[u64]) -> Result<u64, Violation> {
    // Ends sort before starts of the same step.
    let mut events: Vec<(u64, bool, BufferId)> = problem
        .iter()
        .filter(|(_, buffer)| buffer.size > 0)
        .flat_map(|(id, buffer)| [(buffer.live.start, true, id), (buffer.live.end, false, id)])
        .collect();
    events.sort_unstable();
    let mut alive: BTreeMap<ChunkOffset, BufferId> = BTreeMap::new();
    let (mut now, mut most) = (0u64, 0u64);
    for (step, starts, id) in events {
        let (place, bytes) = (plan.places[id.index()], footprints[id.index()]);
        if !starts {
            alive.remove(&place);
            now -= bytes;
            continue;
        }
        let below = alive.range(..=place).next_back();
        let above = alive.range(place..).next();
        for (&other_place, &other) in below.into_iter().chain(above) {
            let other_bytes = footprints[other.index()];
            let apart = other_place.chunk != place.chunk
                || other_place.offset + other_bytes <= place.offset
                || place.offset + bytes <= other_place.offset;
            if !apart {
                return Err(Violation::Overlap {
                    first: other,
                    first_place: other_place,
                    first_bytes: other_bytes,
                    second: id,
                    second_place: place,
                    second_bytes: bytes,
                    step,
                });
            }
        }
        alive.insert(place, id);
        // Disjoint and inside the chunks, whose heights add up within 64 bits.
        now += bytes;
        most = most.max(now);
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, Strategy};

    fn at(chunk: u32, offset: u64) -> ChunkOffset {
        ChunkOffset { chunk, offset }
    }

    /// Two buffers side by side, a third on the bytes of the first when that is gone.
    fn sound() -> (Problem, Plan) {
        let mut problem = Problem { max_chunk: Some(300), ..Problem::default() };
        for live in [0..2, 1..4, 2..4] {
            problem.push(BufferSpec::new(100, 64, live)).unwrap();
        }
        let plan = Plan {
            places: vec![at(0, 0), at(0, 128), at(0, 0)],
            chunks: vec![256],
            oversize: vec![],
            peak: 256,
            bound: 256,
            optimal: true,
            strategy: Strategy::Size,
            work: 0,
        };
        (problem, plan)
    }

    fn broken(change: impl FnOnce(&mut Problem, &mut Plan)) -> Violation {
        let (mut problem, mut plan) = sound();
        assert_eq!(verify(&problem, &plan), Ok(()));
        change(&mut problem, &mut plan);
        verify(&problem, &plan).unwrap_err()
    }

    fn id(index: usize) -> BufferId {
        BufferId::at(index).unwrap()
    }

    #[test]
    fn an_overlap_names_both_buffers_and_the_step() {
        let violation = broken(|_, plan| plan.places[2] = at(0, 64));
        let expected = Violation::Overlap {
            first: id(1),
            first_place: at(0, 128),
            first_bytes: 128,
            second: id(2),
            second_place: at(0, 64),
            second_bytes: 128,
            step: 2,
        };
        assert_eq!(violation, expected);
        let text = "b1 (128 bytes at 0:128) and b2 (128 bytes at 0:64) overlap at step 2";
        assert_eq!(violation.to_string(), text);
    }

    #[test]
    fn misaligned_moved_and_missing_places_are_named() {
        let violation = broken(|_, plan| plan.places[2] = at(0, 32));
        assert_eq!(violation, Violation::Misaligned { buffer: id(2), place: at(0, 32), align: 64 });
        let violation = broken(|problem, _| problem.buffers[0].fixed = Some(at(0, 128)));
        assert_eq!(violation, Violation::Moved { buffer: id(0), place: at(0, 0), fixed: at(0, 128) });
        let violation = broken(|_, plan| plan.places[0] = at(1, 0));
        assert_eq!(violation, Violation::NoSuchChunk { buffer: id(0), place: at(1, 0), chunks: 1 });
        let violation = broken(|_, plan| plan.places.truncate(2));
        assert_eq!(violation, Violation::Count { expected: 3, found: 2 });
    }

    #[test]
    fn without_a_chunk_limit_there_is_one_chunk() {
        let violation = broken(|problem, plan| {
            problem.max_chunk = None;
            plan.chunks.push(128);
            plan.places[0] = at(1, 0);
        });
        assert_eq!(violation, Violation::NoSuchChunk { buffer: id(0), place: at(1, 0), chunks: 1 });
    }

    #[test]
    fn heights_are_exact() {
        let violation = broken(|_, plan| plan.chunks[0] = 257);
        assert_eq!(violation, Violation::Height { chunk: 0, reported: 257, actual: 256 });
        let violation = broken(|_, plan| plan.chunks[0] = 228); // the last buffer's padding counts
        let place = at(0, 128);
        assert_eq!(violation, Violation::Outside { buffer: id(1), place, footprint: 128, height: 228 });
        let violation = broken(|_, plan| plan.places[1].offset = u64::MAX - 63);
        assert!(matches!(violation, Violation::Outside { height: 256, .. }));
    }

    #[test]
    fn sums_limits_and_claims_are_checked() {
        let violation = broken(|_, plan| plan.peak = 255);
        assert_eq!(violation, Violation::Peak { reported: 255, actual: Some(256) });
        let violation = broken(|problem, _| problem.max_chunk = Some(255));
        assert_eq!(violation, Violation::ChunkTooHigh { chunk: 0, height: 256, max_chunk: 255 });
        let violation = broken(|_, plan| plan.oversize = vec![0]);
        assert_eq!(violation, Violation::Oversize { reported: vec![0], actual: vec![] });
        let violation = broken(|problem, _| problem.capacity = Some(255));
        assert_eq!(violation, Violation::OverCapacity { peak: 256, capacity: 255 });
        for bound in [255, 257] {
            let violation = broken(|_, plan| plan.bound = bound);
            assert_eq!(violation, Violation::Bound { bound, peak: 256, alive: 256 });
        }
    }

    #[test]
    fn invalid_buffers_are_reported() {
        let changes: [fn(&mut BufferSpec); 3] = [|b| b.align = 0, |b| b.live = 3..3, |b| b.size = u64::MAX];
        for change in changes {
            let violation = broken(|problem, _| change(&mut problem.buffers[1]));
            assert_eq!(violation, Violation::Unsound { buffer: id(1) });
        }
    }

    #[test]
    fn a_chunk_may_be_as_high_as_one_buffer_in_it() {
        let mut problem = Problem { max_chunk: Some(100), ..Problem::default() };
        problem.push(BufferSpec::new(200, 1, 0..1)).unwrap();
        problem.push(BufferSpec::new(150, 1, 1..2)).unwrap();
        let places = vec![at(0, 0), at(0, 50)];
        let plan = Plan { places, chunks: vec![200], oversize: vec![0], peak: 200, bound: 200, ..sound().1 };
        assert_eq!(verify(&problem, &plan), Ok(()));
    }
}
