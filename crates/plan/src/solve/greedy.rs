//! Greedy placement in a given order, by first fit or best fit.

use super::budget::Budget;
use super::instance::Instance;
use crate::ChunkOffset;
use crate::round::round_up;

/// The choice between gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// First fit: the lowest gap that grows no chunk, in the first chunk that has one.
    First,
    /// Best fit: the smallest gap between two items.
    Best,
}

/// An offset per item, and the resulting peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) places: Vec<ChunkOffset>,
    pub(super) peak: u64,
}

/// The result of one run.
#[derive(Debug)]
pub(super) struct Run {
    /// `None` if the run reached `cutoff`, spent its budget, or overflowed 64 bits.
    pub(super) layout: Option<Layout>,
    /// Items whose placement raised the peak above `target`, in order.
    pub(super) misfits: Vec<u32>,
}

/// The peaks that a run aims at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    /// The run stops at this peak.
    pub(super) cutoff: u64,
    /// Items that raise the peak above this are misfits.
    pub(super) target: u64,
}

/// Places the fixed items, then `order`, which holds every free item once.
pub(super) fn greedy(items: &Instance, order: &[u32], fit: Fit, aim: Aim, budget: &mut Budget) -> Run {
    let mut arena = Arena::new(items, fit);
    let mut misfits = vec![];
    for &(item, place) in &items.fixed {
        arena.put(item, place);
    }
    for &item in order {
        let placed = arena.best_gap(item, budget).map(|place| (arena.peak, arena.put(item, place)));
        let Some((before, Some(after))) = placed else { return Run { layout: None, misfits } };
        if after > before && after > aim.target {
            misfits.push(item);
        }
        if after >= aim.cutoff || budget.is_spent() {
            return Run { layout: None, misfits };
        }
    }
    let places =
        arena.ranges.iter().map(|range| ChunkOffset { chunk: range.chunk, offset: range.low }).collect();
    Run { layout: Some(Layout { places, peak: arena.peak }), misfits }
}

/// The bytes of a placed item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacedRange {
    chunk: u32,
    low: u64,
    high: u64,
}

const UNPLACED: PlacedRange = PlacedRange { chunk: u32::MAX, low: 0, high: 0 };

struct Arena<'a> {
    items: &'a Instance,
    fit: Fit,
    ranges: Vec<PlacedRange>,
    heights: Vec<u64>,
    /// Sum of the heights.
    peak: u64,
    /// Scratch: the ranges in conflict with the next item.
    around: Vec<PlacedRange>,
}

/// A possible offset with its score; the lowest score wins.
type Candidate = ((u64, u64), ChunkOffset);

impl<'a> Arena<'a> {
    fn new(items: &'a Instance, fit: Fit) -> Self {
        let ranges = vec![UNPLACED; items.len()];
        Self { items, fit, ranges, heights: vec![], peak: 0, around: vec![] }
    }

    /// Places an item in free space and returns the new peak; `None` on overflow.
    fn put(&mut self, item: u32, place: ChunkOffset) -> Option<u64> {
        let high = place.offset.checked_add(self.items.footprint[item as usize])?;
        let chunk = place.chunk as usize;
        if chunk >= self.heights.len() {
            self.heights.resize(chunk + 1, 0);
        }
        let grown = high.saturating_sub(self.heights[chunk]);
        self.peak = self.peak.checked_add(grown)?;
        self.heights[chunk] += grown;
        self.ranges[item as usize] = PlacedRange { chunk: place.chunk, low: place.offset, high };
        Some(self.peak)
    }

    fn best_gap(&mut self, item: u32, budget: &mut Budget) -> Option<ChunkOffset> {
        let (earlier, later) = self.items.neighbours(item);
        let conflicts = earlier.len() + later.len();
        let placed = |range: &PlacedRange| range.chunk != UNPLACED.chunk;
        self.around.clear();
        self.around.extend(earlier.iter().map(|other| self.ranges[*other as usize]).filter(placed));
        self.around.extend(self.ranges[later].iter().copied().filter(placed));
        self.around.sort_unstable();
        let looks = conflicts + 4 * self.around.len() + 4 * self.heights.len() + 4;
        budget.charge(looks as u64);

        let mut best: Option<Candidate> = None;
        let mut rest = self.around.as_slice();
        for chunk in 0..self.heights.len() as u32 {
            let (here, above) = rest.split_at(rest.partition_point(|range| range.chunk == chunk));
            rest = above;
            best = self.best_in_chunk(item, chunk, here, best);
        }
        best.map(|(_, place)| place).or_else(|| self.new_chunk())
    }

    /// The better of `best` and the best gap between or above `here` in the chunk.
    fn best_in_chunk(
        &self,
        item: u32,
        chunk: u32,
        here: &[PlacedRange],
        mut best: Option<Candidate>,
    ) -> Option<Candidate> {
        let (need, align) = (self.items.footprint[item as usize], self.items.align[item as usize]);
        let mut offer = |score: (u64, u64), offset: u64| {
            if best.is_none_or(|(so_far, _)| score < so_far) {
                best = Some((score, ChunkOffset { chunk, offset }));
            }
        };
        let end_of = |floor: u64| {
            let at = round_up(floor, align)?;
            Some((at, at.checked_add(need)?))
        };
        let mut floor = 0;
        for range in here {
            if range.low > floor
                && let Some((at, end)) = end_of(floor)
                && end <= range.low
            {
                match self.fit {
                    Fit::First => offer((0, 0), at),
                    Fit::Best => offer((0, range.low - floor), at),
                }
            }
            floor = floor.max(range.high);
        }
        let limit = self.items.max_chunk.map_or(u64::MAX, |max| max.max(need));
        if let Some((at, end)) = end_of(floor)
            && end <= limit.max(self.heights[chunk as usize])
        {
            let grown = end.saturating_sub(self.heights[chunk as usize]);
            match self.fit {
                Fit::First => offer((grown, 0), at),
                // Any gap beats growth.
                Fit::Best => offer((grown.saturating_add(1), 0), at),
            }
        }
        best
    }

    fn new_chunk(&self) -> Option<ChunkOffset> {
        let another = self.heights.is_empty() || self.items.max_chunk.is_some();
        let chunk = u32::try_from(self.heights.len()).ok().filter(|_| another)?;
        Some(ChunkOffset { chunk, offset: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, Problem};

    const FREE: Aim = Aim { cutoff: u64::MAX, target: 0 };

    fn items(max_chunk: Option<u64>, buffers: Vec<BufferSpec>) -> Instance {
        Instance::new(&Problem { buffers, max_chunk, capacity: None }, 1 << 20).unwrap()
    }

    fn places(items: &Instance, order: &[u32], fit: Fit) -> Vec<(u32, u64)> {
        let run = greedy(items, order, fit, FREE, &mut Budget::per_buffer(1000, 1));
        run.layout.unwrap().places.into_iter().map(|place| (place.chunk, place.offset)).collect()
    }

    #[test]
    fn first_fit_takes_the_lowest_gap_and_best_fit_the_smallest() {
        let fixed = |size, offset| BufferSpec::new(size, 1, 0..9).fixed_at(ChunkOffset { chunk: 0, offset });
        let buffers = vec![fixed(10, 30), fixed(10, 60), BufferSpec::new(15, 1, 1..2)];
        let items = items(None, buffers);
        assert_eq!(places(&items, &[2], Fit::First)[2], (0, 0));
        assert_eq!(places(&items, &[2], Fit::Best)[2], (0, 40));
    }

    #[test]
    fn gaps_are_entered_at_aligned_offsets() {
        let fixed = |size, offset| BufferSpec::new(size, 1, 0..9).fixed_at(ChunkOffset { chunk: 0, offset });
        let buffers =
            vec![fixed(1, 0), fixed(1, 16), BufferSpec::new(9, 8, 1..2), BufferSpec::new(8, 8, 1..2)];
        let items = items(None, buffers);
        assert_eq!(places(&items, &[2, 3], Fit::First)[2..], [(0, 24), (0, 8)]);
    }

    #[test]
    fn nothing_straddles_chunks_and_the_one_that_grows_least_is_chosen() {
        let buffers = vec![
            BufferSpec::new(60, 1, 0..4),
            BufferSpec::new(70, 1, 0..4),
            BufferSpec::new(30, 1, 0..4),
            BufferSpec::new(40, 1, 0..4),
        ];
        let items = items(Some(100), buffers);
        for fit in [Fit::Best, Fit::First] {
            assert_eq!(places(&items, &[0, 1, 2, 3], fit), [(0, 0), (1, 0), (0, 60), (2, 0)]);
            assert_eq!(places(&items, &[0, 1, 3, 2], fit), [(0, 0), (1, 0), (1, 70), (0, 60)]);
        }
    }

    #[test]
    fn an_oversize_buffer_shares_a_chunk_only_from_its_foot() {
        let buffers =
            vec![BufferSpec::new(50, 1, 0..4), BufferSpec::new(300, 1, 4..6), BufferSpec::new(200, 1, 3..5)];
        let items = items(Some(100), buffers);
        assert_eq!(places(&items, &[0, 1, 2], Fit::First), [(0, 0), (1, 0), (0, 0)]);
    }

    #[test]
    fn a_run_stops_at_the_cutoff_and_names_what_did_not_fit() {
        let items = items(None, vec![BufferSpec::new(10, 1, 0..9); 3]);
        let aim = Aim { cutoff: 30, target: 10 };
        let run = greedy(&items, &[2, 0, 1], Fit::First, aim, &mut Budget::per_buffer(1000, 1));
        assert_eq!((run.layout, run.misfits), (None, vec![0, 1]));
    }

    #[test]
    fn a_run_without_work_stops() {
        let items = items(None, vec![BufferSpec::new(10, 1, 0..9); 3]);
        let run = greedy(&items, &[0, 1, 2], Fit::First, FREE, &mut Budget::per_buffer(0, 3));
        assert_eq!(run.layout, None);
    }
}
