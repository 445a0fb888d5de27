//! A problem in the form of the greedy strategies: flat arrays and a conflict graph.

use std::ops::Range;

use crate::{ChunkOffset, Problem};

/// Non-empty buffers, renumbered as items by their first step, with the conflicts between them.
///
/// In this numbering the items that start during the lifetime of item `i` directly follow it, so only the
/// items that are live when it starts need a list.
#[derive(Debug)]
pub(super) struct Instance {
    /// Per item, its buffer.
    pub(super) buffer: Vec<u32>,
    pub(super) footprint: Vec<u64>,
    pub(super) align: Vec<u64>,
    pub(super) start: Vec<u64>,
    pub(super) end: Vec<u64>,
    /// Fixed items with their offsets.
    pub(super) fixed: Vec<(u32, ChunkOffset)>,
    /// The other items, ascending.
    pub(super) free: Vec<u32>,
    pub(super) max_chunk: Option<u64>,
    /// Per item, the first later item that starts after its end.
    until: Vec<u32>,
    /// When item `i` starts, `alive[first[i]..first[i + 1]]` are live.
    first: Vec<usize>,
    alive: Vec<u32>,
}

/// Limit on stored conflicts (four bytes each).
const MAX_CONFLICTS: u64 = 1 << 26;

/// Work per conflict to store it and to place every item once.
const ONE_RUN: u64 = 7;

impl Instance {
    /// `None` if `work` is too little to place every item once. The problem must be valid.
    pub(super) fn new(problem: &Problem, work: u64) -> Option<Self> {
        let mut buffer: Vec<u32> = (0u32..)
            .zip(&problem.buffers)
            .filter(|(_, buffer)| buffer.size > 0)
            .map(|(index, _)| index)
            .collect();
        buffer.sort_by_key(|index| problem.buffers[*index as usize].live.start);
        let of = || buffer.iter().map(|index| &problem.buffers[*index as usize]);
        let start: Vec<u64> = of().map(|b| b.live.start).collect();
        let end: Vec<u64> = of().map(|b| b.live.end).collect();
        let until: Vec<u32> =
            end.iter().map(|end| start.partition_point(|start| start < end) as u32).collect();
        let conflicts: u64 = (1u32..).zip(&until).map(|(next, until)| u64::from(until - next)).sum();
        if conflicts > MAX_CONFLICTS.min(work / ONE_RUN) {
            return None;
        }
        let (first, alive) = alive_at_start(&start, &end, conflicts as usize);
        Some(Self {
            footprint: of().map(|b| b.footprint()).collect::<Option<_>>()?,
            align: of().map(|b| b.align).collect(),
            fixed: (0u32..).zip(of()).filter_map(|(item, b)| Some((item, b.fixed?))).collect(),
            free: (0u32..).zip(of()).filter(|(_, b)| b.fixed.is_none()).map(|(item, _)| item).collect(),
            max_chunk: problem.max_chunk,
            buffer,
            start,
            end,
            until,
            first,
            alive,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Number of pairs of items that are live at the same step.
    pub(super) fn conflicts(&self) -> u64 {
        self.alive.len() as u64
    }

    /// The items in conflict with `item`: those live when it starts, and the range of those that start later.
    pub(super) fn neighbours(&self, item: u32) -> (&[u32], Range<usize>) {
        let i = item as usize;
        (&self.alive[self.first[i]..self.first[i + 1]], i + 1..self.until[i] as usize)
    }
}

/// For items by ascending start, the earlier items that are live when each starts, in CSR form: offsets and
/// values. There are `conflicts` in all.
fn alive_at_start(start: &[u64], end: &[u64], conflicts: usize) -> (Vec<usize>, Vec<u32>) {
    let mut first = Vec::with_capacity(start.len() + 1);
    let mut lists = Vec::with_capacity(conflicts);
    let mut alive: Vec<u32> = vec![];
    first.push(0);
    for (item, now) in (0u32..).zip(start) {
        alive.retain(|other| end[*other as usize] > *now);
        lists.extend_from_slice(&alive);
        first.push(lists.len());
        alive.push(item);
    }
    (first, lists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferSpec;

    #[test]
    fn neighbours_are_those_alive_together() {
        let live = [0..4, 2..3, 3..8, 4..5, 9..10];
        let buffers = live.map(|live| BufferSpec::new(1, 1, live)).to_vec();
        let items = Instance::new(&Problem { buffers, ..Problem::default() }, 100).unwrap();
        assert_eq!(items.neighbours(0), (&[][..], 1..3));
        assert_eq!(items.neighbours(1), (&[0][..], 2..2));
        assert_eq!(items.neighbours(2), (&[0][..], 3..4));
        assert_eq!(items.neighbours(3), (&[2][..], 4..4));
        assert_eq!(items.neighbours(4), (&[][..], 5..5));
    }

    #[test]
    fn items_are_ordered_by_first_step_without_empty_buffers() {
        let buffers =
            vec![BufferSpec::new(5, 4, 3..9), BufferSpec::new(0, 1, 0..9), BufferSpec::new(7, 1, 0..2)];
        let items = Instance::new(&Problem { buffers, ..Problem::default() }, 100).unwrap();
        assert_eq!((items.buffer.as_slice(), items.footprint.as_slice()), (&[2, 0][..], &[7, 8][..]));
    }

    #[test]
    fn too_many_conflicts_are_not_stored() {
        let buffers = vec![BufferSpec::new(1, 1, 0..9); 100];
        let problem = Problem { buffers, ..Problem::default() };
        let work = 100 * 99 / 2 * ONE_RUN;
        assert!(Instance::new(&problem, work - 1).is_none());
        assert!(Instance::new(&problem, work).is_some());
    }
}
