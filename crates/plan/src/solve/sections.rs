//! A problem in the form of the bottom-up strategies: sections of time, and one address space for all chunks.
//!
//! Sections are those of [MiniMalloc](https://dl.acm.org/doi/10.1145/3623278.3624752).

use std::ops::Range;

use super::greedy::Layout;
use crate::round::round_up;
use crate::{ChunkOffset, Problem};

/// Non-empty buffers as items, ordered by the section that they start in.
///
/// A section is a maximal set of items live at one step. Two items overlap in time exactly if they share a section,
/// and there are at most as many sections as items.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    /// Per item, its buffer.
    pub(super) buffer: Vec<u32>,
    /// Per item, the sections at which it is live: `low..high`.
    pub(super) low: Vec<u32>,
    pub(super) high: Vec<u32>,
    /// Per item, its footprint.
    pub(super) bytes: Vec<u64>,
    pub(super) align: Vec<u64>,
    /// Per item, the length of its lifetime.
    pub(super) steps: Vec<u64>,
    /// Per item, its fixed address, if any.
    pub(super) fixed: Vec<Option<u64>>,
    /// Per section, the bytes live.
    pub(super) load: Vec<u64>,
    /// Per section, the first item that starts in it or later; one more at the end.
    first: Vec<u32>,
    pub(super) space: AddressSpace,
}

/// One address space for all chunks: chunk `c` starts at `c` times the chunk limit, and items do not cross chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AddressSpace {
    /// `None`: one chunk.
    pub(super) max_chunk: Option<u64>,
}

impl AddressSpace {
    /// The lowest valid address at or above `from` for `bytes`; `None` on overflow.
    pub(super) fn earliest(self, from: u64, bytes: u64, align: u64) -> Option<u64> {
        let Some(max) = self.max_chunk else { return round_up(from, align) };
        let start = from - from % max;
        let inside = round_up(from - start, align)?;
        if inside.checked_add(bytes)? <= max { start.checked_add(inside) } else { start.checked_add(max) }
    }

    pub(super) fn place(self, address: u64) -> ChunkOffset {
        match self.max_chunk {
            Some(max) => ChunkOffset { chunk: (address / max) as u32, offset: address % max },
            None => ChunkOffset { chunk: 0, offset: address },
        }
    }

    /// `None` on overflow, and for chunks outside the address space.
    fn address(self, place: ChunkOffset) -> Option<u64> {
        match self.max_chunk {
            Some(max) => u64::from(place.chunk).checked_mul(max)?.checked_add(place.offset),
            None => (place.chunk == 0).then_some(place.offset),
        }
    }
}

impl Sections {
    /// `None` if a buffer exceeds the chunk limit, or the chunks exceed 64 bits. The problem must be valid.
    pub(super) fn new(problem: &Problem) -> Option<Self> {
        let mut items: Vec<u32> = (0u32..)
            .zip(&problem.buffers)
            .filter(|(_, buffer)| buffer.size > 0)
            .map(|(index, _)| index)
            .collect();
        let of = |index: &u32| &problem.buffers[*index as usize];
        items.sort_by_key(|index| of(index).live.start);
        let bytes: Vec<u64> = items.iter().map(|index| of(index).footprint()).collect::<Option<_>>()?;
        let total = bytes.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes))?;
        // If the sum of all sizes fits one chunk, the chunk limit has no effect.
        let fixed_above = |index: &u32| of(index).fixed.is_some_and(|place| place.chunk > 0);
        let chunked = |max: &u64| total > *max || items.iter().any(fixed_above);
        let space = AddressSpace { max_chunk: problem.max_chunk.filter(chunked) };
        if let Some(max) = space.max_chunk {
            let most =
                problem.buffers.iter().filter_map(|b| b.fixed).map(|place| u64::from(place.chunk)).max();
            let most = most.unwrap_or(0).checked_add(bytes.len() as u64 + 1)?;
            if bytes.iter().any(|bytes| *bytes > max) || most.checked_mul(max).is_none() {
                return None;
            }
        }
        let fixed = items.iter().map(|index| match of(index).fixed {
            Some(place) => space.address(place).map(Some),
            None => Some(None),
        });
        let fixed: Vec<Option<u64>> = fixed.collect::<Option<_>>()?;

        let mut ends: Vec<u32> = (0..items.len() as u32).collect();
        ends.sort_unstable_by_key(|item| of(&items[*item as usize]).live.end);
        let mut ends = ends.into_iter().peekable();
        let (mut low, mut high) = (Vec::with_capacity(items.len()), vec![0u32; items.len()]);
        let (mut load, mut alive, mut first) = (Vec::new(), 0u64, vec![0u32]);
        let mut close = |until: u64, started: usize, alive: &mut u64| {
            // The section that the latest starts opened closes at the first end after them.
            let mut ended = false;
            while let Some(item) = ends.next_if(|item| of(&items[*item as usize]).live.end <= until) {
                if !ended && first.last().is_some_and(|first| (*first as usize) < started) {
                    load.push(*alive);
                    first.push(started as u32);
                }
                ended = true;
                high[item as usize] = load.len() as u32;
                *alive -= bytes[item as usize];
            }
            load.len() as u32
        };
        for (item, index) in items.iter().enumerate() {
            low.push(close(of(index).live.start, item, &mut alive));
            alive += bytes[item];
        }
        close(u64::MAX, items.len(), &mut alive);
        Some(Self {
            align: items.iter().map(|index| of(index).align).collect(),
            steps: items.iter().map(|index| of(index).live.end - of(index).live.start).collect(),
            buffer: items,
            low,
            high,
            bytes,
            fixed,
            load,
            first,
            space,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The items that start in a section of `sections`.
    pub(super) fn starting(&self, sections: Range<usize>) -> Range<usize> {
        self.first[sections.start] as usize..self.first[sections.end] as usize
    }

    /// The lowest valid address of an item at or above `from`.
    pub(super) fn earliest(&self, item: usize, from: u64) -> Option<u64> {
        self.space.earliest(from, self.bytes[item], self.align[item])
    }

    /// Splits the problem into partitions that share no item: their sections and their items.
    pub(super) fn partitions(&self) -> Vec<(Range<usize>, Range<usize>)> {
        let mut partitions = vec![];
        let (mut from, mut reach) = (0, 0);
        for section in 0..self.load.len() {
            let items = self.starting(section..section + 1);
            reach = self.high[items].iter().fold(reach, |reach, high| reach.max(*high as usize));
            if reach <= section + 1 {
                partitions.push((from..section + 1, self.starting(from..section + 1)));
                from = section + 1;
            }
        }
        partitions
    }

    /// The address of each item, given an offset for each buffer.
    pub(super) fn addresses(&self, places: &[ChunkOffset]) -> Option<Vec<u64>> {
        self.buffer.iter().map(|buffer| self.space.address(places[*buffer as usize])).collect()
    }

    /// The layout of the given addresses.
    pub(super) fn layout(&self, addresses: &[u64]) -> Option<Layout> {
        let places: Vec<ChunkOffset> = addresses.iter().map(|address| self.space.place(*address)).collect();
        let mut heights = vec![0u64; places.iter().map(|place| place.chunk as usize + 1).max().unwrap_or(0)];
        for (place, bytes) in places.iter().zip(&self.bytes) {
            let height = &mut heights[place.chunk as usize];
            *height = (*height).max(place.offset.checked_add(*bytes)?);
        }
        let peak = heights.iter().try_fold(0u64, |sum, height| sum.checked_add(*height))?;
        Some(Layout { places, peak })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferSpec;

    fn sections(live: &[Range<u64>]) -> Sections {
        let buffers = live.iter().map(|live| BufferSpec::new(10, 1, live.clone())).collect();
        Sections::new(&Problem { buffers, ..Problem::default() }).unwrap()
    }

    #[test]
    fn sections_are_the_maximal_sets_of_live_items() {
        // {0, 1}, then {0, 2}, then {3}.
        let made = sections(&[0..5, 1..2, 3..6, 7..9]);
        let spans: Vec<_> = made.low.iter().copied().zip(made.high.iter().copied()).collect();
        assert_eq!(spans, [(0, 2), (0, 1), (1, 2), (2, 3)]);
        assert_eq!(made.load, [20, 20, 10]);
        assert_eq!([0..1, 1..2, 2..3].map(|s| made.starting(s)), [0..2, 2..3, 3..4]);
        assert_eq!(made.partitions(), [(0..2, 0..3), (2..3, 3..4)]);
    }

    #[test]
    fn lifetimes_that_touch_share_no_section() {
        let made = sections(&[0..5, 5..6]);
        assert_eq!((made.low, made.high), (vec![0, 1], vec![1, 2]));
    }

    #[test]
    fn items_stay_within_chunks_and_align_from_their_start() {
        let space = AddressSpace { max_chunk: Some(100) };
        assert_eq!(space.earliest(90, 10, 1), Some(90));
        assert_eq!(space.earliest(91, 10, 1), Some(100));
        assert_eq!(space.earliest(101, 10, 8), Some(108));
        assert_eq!(space.place(108), ChunkOffset { chunk: 1, offset: 8 });
        assert_eq!(space.address(ChunkOffset { chunk: 1, offset: 8 }), Some(108));
        assert_eq!(AddressSpace::default().address(ChunkOffset { chunk: 1, offset: 8 }), None);
        assert_eq!(AddressSpace::default().earliest(u64::MAX, 10, 8), None);
        assert_eq!(AddressSpace::default().earliest(91, 10, 8), Some(96));
    }

    #[test]
    fn a_chunk_limit_above_the_total_size_has_no_effect() {
        let buffers = vec![BufferSpec::new(10, 1, 0..1); 3];
        let lines = [29, 30].map(|max| {
            let problem = Problem { buffers: buffers.clone(), max_chunk: Some(max), capacity: None };
            Sections::new(&problem).unwrap().space.max_chunk
        });
        assert_eq!(lines, [Some(29), None]);
    }
}
