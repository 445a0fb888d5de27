//! The skyline: the upper edge of the placed items.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A segment of the skyline: sections of equal height between higher walls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) floor: u64,
}

/// Heights over sections, as runs of equal height. A run's id is its first section.
#[derive(Debug)]
pub(super) struct Skyline {
    /// Per run, the next one and the one before; `GONE` where there is no run.
    next: Vec<u32>,
    before: Vec<u32>,
    height: Vec<u64>,
    /// Runs by height; may hold stale entries.
    queue: BinaryHeap<Reverse<u128>>,
}

/// A run in one number, compared at once: lowest first, then by first section.
fn key(floor: u64, low: u32, high: u32) -> Reverse<u128> {
    Reverse(u128::from(floor) << 64 | u128::from(low) << 32 | u128::from(high))
}

const GONE: u32 = u32::MAX;

impl Skyline {
    pub(super) fn new(sections: usize) -> Self {
        let mut next = vec![GONE; sections + 1];
        next[0] = sections as u32;
        let queue = BinaryHeap::from([key(0, 0, sections as u32)]);
        Self { next, before: vec![GONE; sections + 1], height: vec![0; sections + 1], queue }
    }

    fn sections(&self) -> usize {
        self.next.len() - 1
    }

    /// The lowest segment; `None` if there are no sections.
    pub(super) fn lowest(&mut self) -> Option<Segment> {
        while let Some(Reverse(key)) = self.queue.pop() {
            let (floor, low, high) = ((key >> 64) as u64, (key >> 32) as u32, key as u32);
            let run = low as usize;
            if run < self.sections() && self.next[run] == high && self.height[run] == floor {
                return Some(Segment { low, high, floor });
            }
        }
        None
    }

    /// Places an item on the floor of a segment.
    pub(super) fn cover(&mut self, segment: &Segment, span: Range<u32>, top: u64) {
        if span.end < segment.high {
            self.split(segment.low, span.end);
            self.push(span.end);
        }
        if span.start > segment.low {
            self.split(segment.low, span.start);
            self.push(segment.low);
        }
        self.height[span.start as usize] = top;
        let run = self.join(span.start);
        self.push(run);
    }

    /// Raises the floor of a segment to the lower wall; without a wall, every item is placed.
    pub(super) fn raise(&mut self, segment: &Segment) {
        let (run, next) = (segment.low as usize, segment.high as usize);
        let left = self.before.get(run).filter(|b| **b != GONE).map(|b| self.height[*b as usize]);
        let right = (next < self.sections()).then(|| self.height[next]);
        let Some(wall) = left.into_iter().chain(right).min() else { return };
        self.height[run] = wall;
        let run = self.join(segment.low);
        self.push(run);
    }

    fn push(&mut self, run: u32) {
        self.queue.push(key(self.height[run as usize], run, self.next[run as usize]));
    }

    /// Splits a run in two.
    fn split(&mut self, run: u32, at: u32) {
        let next = self.next[run as usize];
        self.link(run, at);
        self.link(at, next);
        self.height[at as usize] = self.height[run as usize];
    }

    fn link(&mut self, run: u32, next: u32) {
        self.next[run as usize] = next;
        self.before[next as usize] = run;
    }

    /// Merges a run with neighbours of equal height and returns the id of the result.
    fn join(&mut self, run: u32) -> u32 {
        let next = self.next[run as usize];
        if (next as usize) < self.sections() && self.height[next as usize] == self.height[run as usize] {
            let far = self.next[next as usize];
            self.next[next as usize] = GONE;
            self.link(run, far);
        }
        let before = self.before[run as usize];
        if before != GONE && self.height[before as usize] == self.height[run as usize] {
            let next = self.next[run as usize];
            self.next[run as usize] = GONE;
            self.link(before, next);
            return before;
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(low: u32, high: u32, floor: u64) -> Option<Segment> {
        Some(Segment { low, high, floor })
    }

    #[test]
    fn segments_come_lowest_first_and_merge_when_raised() {
        let mut skyline = Skyline::new(10);
        let floor = skyline.lowest().unwrap();
        skyline.cover(&floor, 3..6, 7);
        assert_eq!(skyline.lowest(), segment(0, 3, 0));
        let right = skyline.lowest().unwrap();
        assert_eq!(Some(right), segment(6, 10, 0));
        skyline.cover(&right, 6..10, 5);
        assert_eq!(skyline.lowest(), segment(6, 10, 5));
        skyline.raise(&Segment { low: 6, high: 10, floor: 5 });
        assert_eq!(skyline.lowest(), segment(3, 10, 7));
        skyline.raise(&Segment { low: 0, high: 3, floor: 0 });
        assert_eq!(skyline.lowest(), segment(0, 10, 7));
    }

    #[test]
    fn equal_heights_side_by_side_are_one_run() {
        let mut skyline = Skyline::new(4);
        let floor = skyline.lowest().unwrap();
        skyline.cover(&floor, 0..2, 9);
        let rest = skyline.lowest().unwrap();
        skyline.cover(&rest, 2..4, 9);
        assert_eq!(skyline.lowest(), segment(0, 4, 9));
    }
}
