//! A problem as the strategies see it that fill an arena from below: sections of time, and one line of addresses.

use std::ops::Range;

use super::greedy::Layout;
use crate::round::round_up;
use crate::{ChunkOffset, Problem};

/// Buffers that take space, by the section they start in.
///
/// A section is a stretch of steps between the last of some starts and the first end after it: what is alive at
/// any step is alive throughout one section. So two items meet in time exactly if they share a section, and
/// there are no more sections than items.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    /// Per item, the buffer it stands for.
    pub(super) buffer: Vec<u32>,
    /// Per item, the sections at which it is alive: `low..high`.
    pub(super) low: Vec<u32>,
    pub(super) high: Vec<u32>,
    /// Per item, its footprint.
    pub(super) bytes: Vec<u64>,
    pub(super) align: Vec<u64>,
    /// Per item, how many steps it lives.
    pub(super) steps: Vec<u64>,
    /// Per item, the address where it must be, if it must.
    pub(super) fixed: Vec<Option<u64>>,
    /// Per section, the bytes alive.
    pub(super) load: Vec<u64>,
    /// Per section, the first item that starts in it or later; one more at the end.
    first: Vec<u32>,
    pub(super) line: Line,
}

/// Addresses of all chunks in one line: chunk `c` begins at `c` times the chunk limit, and nothing straddles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// `None`: one chunk.
    pub(super) max_chunk: Option<u64>,
}

impl Line {
    /// The lowest legal address from `from` on for `bytes`; `None` past 64 bits.
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

    /// `None` past 64 bits, and for chunks that are not in the line.
    fn address(self, place: ChunkOffset) -> Option<u64> {
        match self.max_chunk {
            Some(max) => u64::from(place.chunk).checked_mul(max)?.checked_add(place.offset),
            None => (place.chunk == 0).then_some(place.offset),
        }
    }
}

impl Sections {
    /// `None` if a buffer exceeds the chunk limit, or 64 bits are too few for all chunks in a line. The problem is
    /// valid.
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
        // One chunk suffices where everything fits it at once.
        let fixed_above = |index: &u32| of(index).fixed.is_some_and(|place| place.chunk > 0);
        let chunked = |max: &u64| total > *max || items.iter().any(fixed_above);
        let line = Line { max_chunk: problem.max_chunk.filter(chunked) };
        if let Some(max) = line.max_chunk {
            let most =
                problem.buffers.iter().filter_map(|b| b.fixed).map(|place| u64::from(place.chunk)).max();
            let most = most.unwrap_or(0).checked_add(bytes.len() as u64 + 1)?;
            if bytes.iter().any(|bytes| *bytes > max) || most.checked_mul(max).is_none() {
                return None;
            }
        }
        let fixed = items.iter().map(|index| match of(index).fixed {
            Some(place) => line.address(place).map(Some),
            None => Some(None),
        });
        let fixed: Vec<Option<u64>> = fixed.collect::<Option<_>>()?;

        let mut ends: Vec<u32> = (0..items.len() as u32).collect();
        ends.sort_unstable_by_key(|item| of(&items[*item as usize]).live.end);
        let mut ends = ends.into_iter().peekable();
        let (mut low, mut high) = (Vec::with_capacity(items.len()), vec![0u32; items.len()]);
        let (mut load, mut alive, mut first) = (Vec::new(), 0u64, vec![0u32]);
        let mut close = |until: u64, started: usize, alive: &mut u64| {
            // The section that the latest starts opened ends with the first end behind them.
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
            line,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// The items that start in a section of `sections`.
    pub(super) fn starting(&self, sections: Range<usize>) -> Range<usize> {
        self.first[sections.start] as usize..self.first[sections.end] as usize
    }

    /// The lowest legal address for an item from `from` on.
    pub(super) fn earliest(&self, item: usize, from: u64) -> Option<u64> {
        self.line.earliest(from, self.bytes[item], self.align[item])
    }

    /// Stretches of sections that no item of another one reaches, with their items.
    pub(super) fn parts(&self) -> Vec<(Range<usize>, Range<usize>)> {
        let mut parts = vec![];
        let (mut from, mut reach) = (0, 0);
        for section in 0..self.load.len() {
            let items = self.starting(section..section + 1);
            reach = self.high[items].iter().fold(reach, |reach, high| reach.max(*high as usize));
            if reach <= section + 1 {
                parts.push((from..section + 1, self.starting(from..section + 1)));
                from = section + 1;
            }
        }
        parts
    }

    /// The address of each item, given a place for each buffer.
    pub(super) fn addresses(&self, places: &[ChunkOffset]) -> Option<Vec<u64>> {
        self.buffer.iter().map(|buffer| self.line.address(places[*buffer as usize])).collect()
    }

    /// Addresses per item as places per item, and what they cost.
    pub(super) fn layout(&self, addresses: &[u64]) -> Option<Layout> {
        let places: Vec<ChunkOffset> = addresses.iter().map(|address| self.line.place(*address)).collect();
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
    fn sections_hold_what_can_be_alive_at_once() {
        // At most: {0, 1}, then {0, 2}, then {3}.
        let made = sections(&[0..5, 1..2, 3..6, 7..9]);
        let spans: Vec<_> = made.low.iter().copied().zip(made.high.iter().copied()).collect();
        assert_eq!(spans, [(0, 2), (0, 1), (1, 2), (2, 3)]);
        assert_eq!(made.load, [20, 20, 10]);
        assert_eq!([0..1, 1..2, 2..3].map(|s| made.starting(s)), [0..2, 2..3, 3..4]);
        assert_eq!(made.parts(), [(0..2, 0..3), (2..3, 3..4)]);
    }

    #[test]
    fn what_ends_where_another_starts_shares_no_section() {
        let made = sections(&[0..5, 5..6]);
        assert_eq!((made.low, made.high), (vec![0, 1], vec![1, 2]));
    }

    #[test]
    fn nothing_straddles_chunks_and_alignment_counts_from_their_foot() {
        let line = Line { max_chunk: Some(100) };
        assert_eq!(line.earliest(90, 10, 1), Some(90));
        assert_eq!(line.earliest(91, 10, 1), Some(100));
        assert_eq!(line.earliest(101, 10, 8), Some(108));
        assert_eq!(line.place(108), ChunkOffset { chunk: 1, offset: 8 });
        assert_eq!(line.address(ChunkOffset { chunk: 1, offset: 8 }), Some(108));
        assert_eq!(Line::default().address(ChunkOffset { chunk: 1, offset: 8 }), None);
        assert_eq!(Line::default().earliest(u64::MAX, 10, 8), None);
        assert_eq!(Line::default().earliest(91, 10, 8), Some(96));
    }

    #[test]
    fn a_limit_that_everything_fits_is_none() {
        let buffers = vec![BufferSpec::new(10, 1, 0..1); 3];
        let lines = [29, 30].map(|max| {
            let problem = Problem { buffers: buffers.clone(), max_chunk: Some(max), capacity: None };
            Sections::new(&problem).unwrap().line.max_chunk
        });
        assert_eq!(lines, [Some(29), None]);
    }
}
