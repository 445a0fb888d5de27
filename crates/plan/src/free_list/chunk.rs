//! One chunk of a free list: used ranges, holes, tail and high-water mark.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound::{Excluded, Unbounded};

/// A free block as `(start, length)`.
pub(super) type Hole = (u64, u64);

/// The holes that a change to a chunk closed and opened, to update the indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) closed: [Option<Hole>; 2],
    pub(super) opened: [Option<Hole>; 2],
}

/// Fibonacci hashing: offsets are multiples of an alignment, and the multiplication mixes the high bits best.
#[derive(Clone, Copy, Default)]
struct OffsetHasher(u64);

impl Hasher for OffsetHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, offset: u64) {
        self.0 = (self.0 ^ offset).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// Used ranges, the holes between them, and the tail above them.
///
/// The tail is the free space from the highest used byte to the capacity; in a full chunk it is empty.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) capacity: u64,
    pub(super) high_water: u64,
    pub(super) tail: u64,
    /// Lengths by start. Looked up, never walked.
    used: HashMap<u64, u64, BuildHasherDefault<OffsetHasher>>,
    holes: BTreeMap<u64, u64>,
}

impl Chunk {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, high_water: 0, tail: 0, used: HashMap::default(), holes: BTreeMap::new() }
    }

    /// Holes by ascending start, without the tail.
    pub(super) fn holes(&self) -> impl DoubleEndedIterator<Item = Hole> {
        self.holes.iter().map(|(start, len)| (*start, *len))
    }

    /// Bytes above the highest used one.
    pub(super) fn tail_room(&self) -> u64 {
        self.capacity - self.tail
    }

    /// Bytes of the tail below the high-water mark.
    pub(super) fn slack(&self) -> u64 {
        self.high_water - self.tail
    }

    /// Length of the used range that starts at `start`.
    pub(super) fn used_at(&self, start: u64) -> Option<u64> {
        self.used.get(&start).copied()
    }

    /// Whether `start..start + len` lies within one free block.
    pub(super) fn is_free(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        if start >= self.tail {
            return end <= self.capacity;
        }
        self.holes.range(..=start).next_back().is_some_and(|(hole, size)| end <= hole + size)
    }

    /// Marks a free, non-empty range as used.
    pub(super) fn take(&mut self, start: u64, len: u64) -> Change {
        let end = start + len;
        let mut change = Change::default();
        if start >= self.tail {
            if start > self.tail {
                change.opened[0] = Some((self.tail, start - self.tail));
            }
            self.tail = end;
        } else if let Some((hole, size)) = self.holes.range(..=start).next_back().map(|(s, l)| (*s, *l)) {
            change.closed[0] = Some((hole, size));
            if hole < start {
                change.opened[0] = Some((hole, start - hole));
            }
            if end < hole + size {
                change.opened[1] = Some((end, hole + size - end));
            }
        }
        self.used.insert(start, len);
        self.high_water = self.high_water.max(end);
        self.apply(change)
    }

    /// Frees the end of a used range so that `keep` bytes of it remain, and merges the free space around it.
    pub(super) fn give(&mut self, start: u64, len: u64, keep: u64) -> Change {
        self.used.remove(&start);
        if keep > 0 {
            self.used.insert(start, keep);
        }
        let (start, end) = (start + keep, start + len);
        let below = self.holes.range(..start).next_back().map(|(s, l)| (*s, *l));
        let below = below.filter(|(hole, size)| hole + size == start);
        let low = below.map_or(start, |(hole, _)| hole);
        let mut change = Change { closed: [below, None], ..Change::default() };
        if end == self.tail {
            self.tail = low;
        } else {
            let above = self.holes.range((Excluded(start), Unbounded)).next().map(|(s, l)| (*s, *l));
            let above = above.filter(|(hole, _)| *hole == end);
            let high = above.map_or(end, |(hole, size)| hole + size);
            change.closed[1] = above;
            change.opened[0] = Some((low, high - low));
        }
        self.apply(change)
    }

    fn apply(&mut self, change: Change) -> Change {
        for (start, _) in change.closed.into_iter().flatten() {
            self.holes.remove(&start);
        }
        self.holes.extend(change.opened.into_iter().flatten());
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holes(chunk: &Chunk) -> Vec<Hole> {
        chunk.holes().collect()
    }

    #[test]
    fn taking_the_middle_of_a_hole_leaves_both_sides() {
        let mut chunk = Chunk::new(100);
        chunk.take(0, 50);
        chunk.take(50, 10);
        chunk.give(0, 50, 0);
        chunk.take(20, 10);
        assert_eq!(holes(&chunk), [(0, 20), (30, 20)]);
        assert_eq!((chunk.tail, chunk.high_water), (60, 60));
    }

    #[test]
    fn skipping_the_start_of_the_tail_leaves_a_hole() {
        let mut chunk = Chunk::new(100);
        chunk.take(64, 8);
        assert_eq!(holes(&chunk), [(0, 64)]);
        chunk.give(64, 8, 0);
        assert_eq!((holes(&chunk), chunk.tail, chunk.high_water), (vec![], 0, 72));
    }

    #[test]
    fn a_freed_range_merges_with_both_neighbours_or_none() {
        let mut chunk = Chunk::new(100);
        for start in [0, 10, 20, 30, 40] {
            chunk.take(start, 10);
        }
        chunk.give(10, 10, 0);
        chunk.give(30, 10, 0);
        assert_eq!(holes(&chunk), [(10, 10), (30, 10)]);
        chunk.give(20, 10, 0);
        assert_eq!(holes(&chunk), [(10, 30)]);
        chunk.give(40, 10, 0);
        assert_eq!((holes(&chunk), chunk.tail), (vec![], 10));
    }

    #[test]
    fn free_ranges_do_not_cross_used_ones_or_the_capacity() {
        let mut chunk = Chunk::new(100);
        chunk.take(0, 10);
        chunk.take(10, 10);
        chunk.give(0, 10, 0);
        assert!(chunk.is_free(0, 10) && chunk.is_free(20, 80));
        assert!(!chunk.is_free(0, 11) && !chunk.is_free(20, 81) && !chunk.is_free(15, 1));
        assert!(!chunk.is_free(20, u64::MAX));
    }
}
