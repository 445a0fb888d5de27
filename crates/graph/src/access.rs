//! Dependencies that follow from which bytes are read and written.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// One read or write of storage by one step. Steps come in the caller's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The step.
    pub step: u32,
    /// The storage root, by any numbering.
    pub root: u32,
    /// The bytes of the root.
    pub range: Range<u64>,
    /// Whether they are written or only read.
    pub kind: AccessKind,
}

/// Whether storage is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum AccessKind {
    Read,
    Write,
}

/// Why one step must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hazard {
    /// The later step reads what the earlier one wrote.
    ReadAfterWrite,
    /// The later step overwrites what the earlier one read.
    WriteAfterRead,
    /// The later step overwrites what the earlier one wrote.
    WriteAfterWrite,
}

/// `before` must have happened when `after` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The earlier step.
    pub before: u32,
    /// The later step.
    pub after: u32,
    /// What orders them.
    pub hazard: Hazard,
}

/// Part of a root whose bytes all have the same history.
#[derive(Clone)]
struct Segment {
    end: u64,
    writer: Option<u32>,
    readers: Vec<u32>,
}

/// The order that accesses impose on their steps: every pair of accesses to overlapping bytes of one root of
/// which at least one writes. Pairs that follow from others through an intervening write are left out.
///
/// Accesses must come in the caller's order of steps. Edges come out sorted and without repeats. The same
/// function serves graphs, schedules and memory plans, so that all of them agree on what may move.
pub fn dependencies(accesses: &[Access]) -> Vec<Edge> {
    // Roots that are only read order nothing.
    let written = accesses.iter().filter(|access| access.kind == AccessKind::Write);
    let mut histories: HashMap<u32, BTreeMap<u64, Segment>> =
        written.map(|access| (access.root, BTreeMap::new())).collect();
    let mut edges = Vec::new();
    for access in accesses {
        if access.range.is_empty() {
            continue;
        }
        let Some(history) = histories.get_mut(&access.root) else { continue };
        split_at(history, access.range.start);
        split_at(history, access.range.end);
        match access.kind {
            AccessKind::Read => read(history, access, &mut edges),
            AccessKind::Write => write(history, access, &mut edges),
        }
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn read(history: &mut BTreeMap<u64, Segment>, access: &Access, edges: &mut Vec<Edge>) {
    let mut gaps = Vec::new();
    let mut at = access.range.start;
    for (start, segment) in history.range_mut(access.range.clone()) {
        if at < *start {
            gaps.push(at..*start);
        }
        at = segment.end;
        if let Some(before) = segment.writer.filter(|writer| *writer != access.step) {
            edges.push(Edge { before, after: access.step, hazard: Hazard::ReadAfterWrite });
        }
        if segment.readers.last() != Some(&access.step) {
            segment.readers.push(access.step);
        }
    }
    if at < access.range.end {
        gaps.push(at..access.range.end);
    }
    for gap in gaps {
        history.insert(gap.start, Segment { end: gap.end, writer: None, readers: vec![access.step] });
    }
}

fn write(history: &mut BTreeMap<u64, Segment>, access: &Access, edges: &mut Vec<Edge>) {
    let after = access.step;
    let mut covered = Vec::new();
    for (start, segment) in history.range(access.range.clone()) {
        covered.push(*start);
        if let Some(before) = segment.writer.filter(|writer| *writer != after) {
            edges.push(Edge { before, after, hazard: Hazard::WriteAfterWrite });
        }
        for before in segment.readers.iter().copied().filter(|reader| *reader != after) {
            edges.push(Edge { before, after, hazard: Hazard::WriteAfterRead });
        }
    }
    for start in covered {
        history.remove(&start);
    }
    let segment = Segment { end: access.range.end, writer: Some(after), readers: Vec::new() };
    history.insert(access.range.start, segment);
}

/// Makes `at` a boundary between segments, if it lies inside one.
fn split_at(history: &mut BTreeMap<u64, Segment>, at: u64) {
    let Some((_, segment)) = history.range_mut(..at).next_back() else { return };
    if segment.end > at {
        let upper = segment.clone();
        segment.end = at;
        history.insert(at, upper);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(step: u32, range: Range<u64>, kind: AccessKind) -> Access {
        Access { step, root: 0, range, kind }
    }

    use AccessKind::{Read, Write};
    use Hazard::*;

    #[test]
    fn reads_follow_writes_and_writes_follow_both() {
        let edges = dependencies(&[
            access(0, 0..8, Write),
            access(1, 0..8, Read),
            access(2, 0..8, Read),
            access(3, 0..8, Write),
        ]);
        let pairs: Vec<_> = edges.iter().map(|e| (e.before, e.after, e.hazard)).collect();
        assert_eq!(
            pairs,
            [
                (0, 1, ReadAfterWrite),
                (0, 2, ReadAfterWrite),
                (0, 3, WriteAfterWrite),
                (1, 3, WriteAfterRead),
                (2, 3, WriteAfterRead)
            ]
        );
    }

    #[test]
    fn disjoint_ranges_are_independent() {
        assert_eq!(dependencies(&[access(0, 0..8, Write), access(1, 8..16, Write)]), []);
        let other_root = Access { root: 7, ..access(1, 0..8, Write) };
        assert_eq!(dependencies(&[access(0, 0..8, Write), other_root]), []);
        assert_eq!(dependencies(&[access(0, 0..8, Write), access(1, 3..3, Read)]), []);
    }

    #[test]
    fn partial_overlaps_split_the_history() {
        let edges = dependencies(&[
            access(0, 0..16, Write),
            access(1, 4..8, Write),
            access(2, 0..4, Read),
            access(3, 0..16, Read),
        ]);
        let pairs: Vec<_> = edges.iter().map(|e| (e.before, e.after)).collect();
        assert_eq!(pairs, [(0, 1), (0, 2), (0, 3), (1, 3)]);
    }
}
