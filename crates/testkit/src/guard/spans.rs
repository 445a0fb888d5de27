//! Sets of bytes as sorted ranges.

use std::ops::Range;

/// Bytes of a buffer: ranges in order that neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans(Vec<Range<u64>>);

impl Spans {
    pub(super) fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Spans {
        let mut ranges: Vec<Range<u64>> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Spans(merged)
    }

    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// What of a range is not in here.
    pub(super) fn outside(&self, whole: Range<u64>) -> Vec<Range<u64>> {
        let mut rest = Vec::new();
        let mut at = whole.start;
        for range in self.0.iter().filter(|range| range.end > whole.start && range.start < whole.end) {
            if range.start > at {
                rest.push(at..range.start);
            }
            at = at.max(range.end);
        }
        if at < whole.end {
            rest.push(at..whole.end);
        }
        rest
    }

    /// What is in here and not in the other.
    pub(super) fn without(&self, other: &Spans) -> Spans {
        Spans(self.0.iter().flat_map(|range| other.outside(range.clone())).collect())
    }
}

/// Whether two ranges have a byte in common.
pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_taken_away() {
        let spans = Spans::new([8..12, 0..4, 4..6, 10..20, 30..30]);
        assert_eq!(spans.ranges(), [0..6, 8..20]);
        assert_eq!(spans.outside(0..25), [6..8, 20..25]);
        assert_eq!(spans.outside(2..5), []);
        assert_eq!(spans.without(&Spans::new([2..3, 5..9, 19..40])).ranges(), [0..2, 3..5, 9..19]);
    }
}
