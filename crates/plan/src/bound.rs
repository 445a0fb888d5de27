//! What no plan can be below.

use crate::Problem;

/// The greatest sum of footprints alive at one step, or the height that fixed places alone force,
/// whichever is more. No plan has a smaller peak.
///
/// Footprints (sizes rounded up to the buffer's own alignment) are what chunk heights count, so this holds
/// for mixed alignments too. It takes `n log n` for `n` buffers. A problem that does not
/// [validate](Problem::validate) gives a number without meaning, saturated at `u64::MAX`.
///
/// ```
/// use orlop_plan::{Buffer, Problem, bound};
/// let mut problem = Problem::default();
/// problem.push(Buffer::new(100, 64, 0..2))?;
/// problem.push(Buffer::new(64, 64, 1..3))?;
/// problem.push(Buffer::new(150, 1, 2..4))?;
/// assert_eq!(bound(&problem), 214); // 64 + 150 at step 2; 128 + 64 at step 1
/// # Ok::<(), orlop_plan::PlanError>(())
/// ```
pub fn bound(problem: &Problem) -> u64 {
    densest(problem).bytes.max(fixed_height(problem))
}

/// The step with most bytes alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Densest {
    /// The first such step.
    pub(crate) step: u64,
    /// Footprints alive there.
    pub(crate) bytes: u64,
}

pub(crate) fn densest(problem: &Problem) -> Densest {
    let spans = || {
        problem.buffers.iter().filter(|b| b.size > 0 && !b.live.is_empty()).map(|b| {
            let footprint = b.footprint().unwrap_or(u64::MAX);
            (b.live.clone(), footprint)
        })
    };
    let mut starts: Vec<(u64, u64)> = spans().map(|(live, bytes)| (live.start, bytes)).collect();
    let mut ends: Vec<(u64, u64)> = spans().map(|(live, bytes)| (live.end, bytes)).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let (mut alive, mut best) = (0u128, Densest::default());
    for (step, bytes) in starts {
        while let Some((_, gone)) = ends.next_if(|(end, _)| *end <= step) {
            alive -= u128::from(gone);
        }
        alive += u128::from(bytes);
        let now = u64::try_from(alive).unwrap_or(u64::MAX);
        if now > best.bytes {
            best = Densest { step, bytes: now };
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
    // Ascending by chunk, then by end: the last of each chunk is its height.
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
    fn nothing_needs_nothing() {
        assert_eq!(bound(&Problem::default()), 0);
    }

    #[test]
    fn lifetimes_that_touch_do_not_add_up() {
        let buffers = vec![BufferSpec::new(10, 1, 0..5), BufferSpec::new(20, 1, 5..9)];
        assert_eq!(bound(&Problem { buffers, ..Problem::default() }), 20);
    }

    #[test]
    fn the_densest_step_is_the_first_of_equals() {
        let live = [0..9, 3..4, 6..7];
        let buffers = live.map(|live| BufferSpec::new(10, 1, live)).to_vec();
        let found = densest(&Problem { buffers, ..Problem::default() });
        assert_eq!(found, Densest { step: 3, bytes: 20 });
    }

    #[test]
    fn fixed_places_raise_the_bound_per_chunk() {
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
