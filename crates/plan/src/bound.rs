//! Lower bounds on the peak of every plan.

use crate::Problem;

/// A lower bound on the peak of every plan: the largest sum of footprints live at one step, or the height
/// that fixed offsets alone require, whichever is larger.
///
/// Chunk heights count footprints (sizes rounded up to the buffer's own alignment), so the bound holds for
/// mixed alignments too. It takes `O(n log n)` time. For a problem that fails
/// [validation](Problem::validate) the result is meaningless, saturated at `u64::MAX`.
///
/// ```
/// use orlop_plan::{BufferSpec, Problem, bound};
/// let mut problem = Problem::default();
/// problem.push(BufferSpec::new(100, 64, 0..2))?;
/// problem.push(BufferSpec::new(64, 64, 1..3))?;
/// problem.push(BufferSpec::new(150, 1, 2..4))?;
/// assert_eq!(bound(&problem), 214); // 64 + 150 at step 2; 128 + 64 at step 1
/// # Ok::<(), orlop_plan::PlanError>(())
/// ```
pub fn bound(problem: &Problem) -> u64 {
    max_load(problem).bytes.max(fixed_height(problem))
}

/// The step with the most bytes live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MaxLoad {
    /// The first such step.
    pub(crate) step: u64,
    /// Sum of the footprints live there.
    pub(crate) bytes: u64,
}

pub(crate) fn max_load(problem: &Problem) -> MaxLoad {
    let spans = || {
        problem.buffers.iter().filter(|b| b.size > 0 && !b.live.is_empty()).map(|b| {
            let footprint = b.footprint().unwrap_or(u64::MAX);
            (b.live.clone(), footprint)
        })
    };
    let mut starts: Vec<(u64, u64)> = spans().map(|(live, bytes)| (live.start, bytes)).collect();
    let mut ends: Vec<(u64, u64)> = spans().map(|(live, bytes)| (live.end, bytes)).collect();
    // Starts are mostly in order already, and that of equal steps does not matter.
    starts.sort_unstable_by_key(|(step, _)| *step);
    ends.sort_unstable_by_key(|(step, _)| *step);
    let mut ends = ends.into_iter().peekable();
    let (mut alive, mut best) = (0u128, MaxLoad::default());
    for (step, bytes) in starts {
        while let Some((_, gone)) = ends.next_if(|(end, _)| *end <= step) {
            alive -= u128::from(gone);
        }
        alive += u128::from(bytes);
        let now = u64::try_from(alive).unwrap_or(u64::MAX);
        if now > best.bytes {
            best = MaxLoad { step, bytes: now };
        }
    }
    best
}

/// The sum over chunks of the highest fixed end.
fn fixed_height(problem: &Problem) -> u64 {
    let mut tops: Vec<(u32, u64)> = problem
        .buffers
        .iter()
        .filter(|b| b.size > 0)
        .filter_map(|b| {
            let place = b.fixed?;
            Some((place.chunk, place.offset.saturating_add(b.footprint().unwrap_or(u64::MAX))))
        })
        .collect();
    tops.sort_unstable();
    // Ascending by chunk, then by end: the last entry of each chunk is its height.
    let lasts = tops.iter().zip(tops.iter().skip(1).map(Some).chain([None]));
    lasts
        .filter(|((chunk, _), next)| next.is_none_or(|(other, _)| other != chunk))
        .fold(0, |sum: u64, ((_, end), _)| sum.saturating_add(*end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, ChunkOffset};

    #[test]
    fn the_bound_of_an_empty_problem_is_zero() {
        assert_eq!(bound(&Problem::default()), 0);
    }

    #[test]
    fn lifetimes_that_touch_do_not_add_up() {
        let buffers = vec![BufferSpec::new(10, 1, 0..5), BufferSpec::new(20, 1, 5..9)];
        assert_eq!(bound(&Problem { buffers, ..Problem::default() }), 20);
    }

    #[test]
    fn the_first_of_equal_steps_is_reported() {
        let live = [0..9, 3..4, 6..7];
        let buffers = live.map(|live| BufferSpec::new(10, 1, live)).to_vec();
        let found = max_load(&Problem { buffers, ..Problem::default() });
        assert_eq!(found, MaxLoad { step: 3, bytes: 20 });
    }

    #[test]
    fn fixed_offsets_raise_the_bound_per_chunk() {
        let fixed = |chunk, offset| BufferSpec::new(10, 1, 0..1).fixed_at(ChunkOffset { chunk, offset });
        let buffers = vec![fixed(0, 90), fixed(0, 20), fixed(2, 30)];
        assert_eq!(bound(&Problem { buffers, max_chunk: Some(100), ..Problem::default() }), 140);
    }

    #[test]
    fn sums_beyond_64_bits_saturate() {
        let buffers = vec![BufferSpec::new(u64::MAX, 1, 0..2), BufferSpec::new(u64::MAX, 1, 1..3)];
        assert_eq!(bound(&Problem { buffers, ..Problem::default() }), u64::MAX);
    }
}
