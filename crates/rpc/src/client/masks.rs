//! Masks for attention. ggml's attention has no lengths, windows and pages: what a query does not see is minus infinity in a
//! mask over the rows of the cache, one for all layers that see alike.
//!
//! The host knows lengths and pages, since it wrote them. Where each query sees one range of rows, the server makes the mask
//! from two numbers a query; otherwise the mask is sent.

use std::ops::Range;

use orlop_backend::{Segment, StepValue};
use orlop_graph::{Graph, NodeId, Op, TensorId};

/// Rows by which a mask grows, at least.
const BUCKET: u64 = 256;

/// What a mask depends on. Attention nodes with equal keys share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MaskKey {
    pub(super) lengths: TensorId,
    /// The first row that each query sees.
    pub(super) firsts: Option<TensorId>,
    pub(super) pages: Option<PageKey>,
    pub(super) window: u64,
    /// Rows of the cache.
    pub(super) rows: u64,
    pub(super) queries: u64,
}

/// Where the rows of sequences lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageKey {
    /// Pages of each sequence, and the sequence of each query.
    pub(super) operands: [TensorId; 2],
    pub(super) page_rows: u64,
    /// Pages of one sequence.
    pub(super) of_sequence: u64,
}

/// Temporaries of a mask, and their bytes: two numbers a query, row numbers, distances, and the mask itself.
pub(super) const PARTS: usize = 4;

impl MaskKey {
    /// That of a node, if it is attention to rows by lengths.
    pub(super) fn of(graph: &Graph, node: NodeId) -> Option<MaskKey> {
        let node = graph.node(node);
        let Op::FlashAttention(attention) = &node.op else { return None };
        let lengths = node.inputs[attention.kv_len_slot()?];
        let extents = |slot: usize| graph.tensor(node.inputs[slot]).desc.extents;
        let pages = attention.page_slots().map(|slots| PageKey {
            operands: slots.map(|slot| node.inputs[slot]),
            page_rows: attention.page_rows.into(),
            of_sequence: extents(slots[0])[0],
        });
        Some(MaskKey {
            lengths,
            firsts: attention.kv_first_slot().map(|slot| node.inputs[slot]),
            pages,
            window: attention.window.into(),
            rows: extents(1)[1],
            queries: extents(0)[1],
        })
    }

    /// Those of some nodes, each once.
    pub(super) fn all(graph: &Graph, nodes: impl Iterator<Item = NodeId>) -> Vec<MaskKey> {
        let mut keys = Vec::new();
        for key in nodes.filter_map(|node| MaskKey::of(graph, node)) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// The operands that say who sees what.
    pub(super) fn operands(&self) -> impl Iterator<Item = TensorId> {
        let pages = self.pages.into_iter().flat_map(|pages| pages.operands);
        [self.lengths].into_iter().chain(self.firsts).chain(pages)
    }

    /// Names and bytes of its temporaries.
    pub(super) fn temporaries(&self) -> [(&'static str, u64); PARTS] {
        let area = self.rows.saturating_mul(self.queries);
        [
            ("ranges of rows", 8 * self.queries),
            ("row numbers", self.rows.saturating_mul(4)),
            ("distances of rows", area.saturating_mul(4)),
            ("mask", area.saturating_mul(2)),
        ]
    }

    /// An operand that nodes of the segment write, be it a result or a leaf: the host would have to read it in the middle.
    pub(super) fn computed(&self, segment: &Segment<'_>) -> Option<TensorId> {
        self.operands().find(|id| is_written(segment.graph, segment.nodes.iter().copied(), *id))
    }

    /// Which rows of the cache each query sees, from the operands' numbers.
    pub(super) fn seen(&self, [lengths, firsts, pages, sequences]: [&[i32]; 4]) -> Seen {
        let queries = self.queries as usize;
        let number =
            |of: &[i32], query: usize| u64::try_from(of.get(query).copied().unwrap_or(0)).unwrap_or(0);
        let mut ranges = Vec::with_capacity(queries);
        for query in 0..queries {
            let end = number(lengths, query);
            let first = if self.window == 0 { 0 } else { end.saturating_sub(self.window) };
            let first = first.max(number(firsts, query));
            let Some(PageKey { page_rows, of_sequence, .. }) = self.pages else {
                let end = end.min(self.rows);
                ranges.push(std::iter::once(first.min(end)..end).collect());
                continue;
            };
            let sequence = sequences.get(query).and_then(|sequence| usize::try_from(*sequence).ok());
            let begin = sequence.unwrap_or(usize::MAX).saturating_mul(of_sequence as usize);
            let table = pages.get(begin..begin.saturating_add(of_sequence as usize)).unwrap_or_default();
            let mut found: Vec<Range<u64>> = Vec::new();
            let mut row = first;
            while row < end {
                let page = table.get((row / page_rows) as usize).copied().unwrap_or(-1);
                let in_page = row % page_rows;
                let count = (page_rows - in_page).min(end - row);
                row += count;
                // A page that is not there holds no rows.
                let Ok(page) = u64::try_from(page) else { continue };
                let begin = page.saturating_mul(page_rows).saturating_add(in_page).min(self.rows);
                let place = begin..begin.saturating_add(count).min(self.rows);
                match found.last_mut() {
                    Some(last) if last.end == place.start => last.end = place.end,
                    _ => found.push(place),
                }
            }
            ranges.push(found);
        }
        Seen { ranges }
    }

    /// Rows that a mask covers if the last row seen is before `end`: steps of at most an eighth.
    pub(super) fn bucket(&self, end: u64) -> u64 {
        let step = (end.max(1).next_power_of_two() / 8).max(BUCKET);
        end.max(1).next_multiple_of(step).min(self.rows)
    }
}

/// Whether nodes write the memory of a tensor.
pub(super) fn is_written(graph: &Graph, mut nodes: impl Iterator<Item = NodeId>, tensor: TensorId) -> bool {
    let root = |id: TensorId| graph.tensor(id).storage.root;
    nodes.any(|node| {
        let node = graph.node(node);
        // A view writes nothing.
        !node.op.is_view() && root(node.output) == root(tensor)
    })
}

/// Rows that each query sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    ranges: Vec<Vec<Range<u64>>>,
}

impl Seen {
    /// The end of the last row that any query sees.
    pub(super) fn end(&self) -> u64 {
        self.ranges.iter().flatten().map(|range| range.end).max().unwrap_or(0)
    }

    /// For each query the middle of its range, then for each how far from it the last row lies, if every query sees one range
    /// at most. A query that sees nothing gets a distance that no row has.
    pub(super) fn bounds(&self) -> Option<Vec<u8>> {
        let bound = |ranges: &Vec<Range<u64>>| match &ranges[..] {
            [] => Some((0.0, -1.0)),
            [range] if range.start >= range.end => Some((0.0, -1.0)),
            [range] => {
                Some(((range.start + range.end - 1) as f32 / 2.0, (range.end - 1 - range.start) as f32 / 2.0))
            }
            _ => None,
        };
        let bounds: Option<Vec<(f32, f32)>> = self.ranges.iter().map(bound).collect();
        let bounds = bounds?;
        let numbers = bounds.iter().map(|bound| bound.0).chain(bounds.iter().map(|bound| bound.1));
        Some(numbers.flat_map(f32::to_le_bytes).collect())
    }

    /// The mask itself, in F16, `rows` a query.
    pub(super) fn mask(&self, rows: u64) -> Vec<u8> {
        const MINUS_INFINITY: [u8; 2] = 0xfc00u16.to_le_bytes();
        let mut mask = MINUS_INFINITY.repeat(rows as usize * self.ranges.len());
        for (line, ranges) in mask.chunks_exact_mut(2 * rows.max(1) as usize).zip(&self.ranges) {
            for range in ranges {
                let end = (2 * range.end as usize).min(line.len());
                line[2 * range.start as usize..end.max(2 * range.start as usize)].fill(0);
            }
        }
        mask
    }
}

/// The temporaries of all masks are the first writes of a step of their own; those of a mask follow each other.
pub(super) fn parts_of(writes: &[StepValue], mask: usize) -> &[StepValue] {
    &writes[mask * PARTS..][..PARTS]
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // one range is one range
mod tests {
    use super::*;
    use orlop_graph::{DType, GraphBuilder};

    fn ids() -> [TensorId; 3] {
        let mut b = GraphBuilder::new();
        [(); 3].map(|()| b.input("x", DType::I32, &[1]))
    }

    fn key(window: u64, paged: bool) -> MaskKey {
        let [lengths, a, b] = ids();
        let pages = paged.then_some(PageKey { operands: [a, b], page_rows: 4, of_sequence: 3 });
        MaskKey { lengths, firsts: None, pages, window, rows: 24, queries: 3 }
    }

    #[test]
    fn a_node_may_write_a_leaf_that_the_host_would_read() {
        let mut b = GraphBuilder::new();
        let lengths = b.persistent("lengths", DType::I32, &[3]);
        let new = b.input("new", DType::I32, &[3]);
        let copied = b.node(Op::Copy, &[new, lengths]);
        b.output(copied);
        let graph = b.build().unwrap();
        assert!(is_written(&graph, graph.node_ids(), lengths));
        assert!(!is_written(&graph, graph.node_ids(), new));
    }

    /// What the server makes of the bounds.
    fn visible(bounds: &[u8], rows: u64, queries: usize) -> Vec<bool> {
        let (numbers, _) = bounds.as_chunks::<4>();
        let number = |index: usize| f32::from_le_bytes(numbers[index]);
        let row = |query: usize, row: u64| {
            let distance = (row as f32 - number(query)).abs() - number(queries + query);
            assert!(distance.fract() == 0.0, "{distance}");
            distance.clamp(0.0, 1.0) == 0.0
        };
        (0..queries).flat_map(|query| (0..rows).map(move |at| row(query, at))).collect()
    }

    fn as_mask(visible: &[bool]) -> Vec<u8> {
        visible.iter().flat_map(|seen| if *seen { [0, 0] } else { [0, 0xfc] }).collect()
    }

    #[test]
    fn two_numbers_a_query_say_the_same_as_the_mask() {
        for (window, lengths) in [(0, [0, 1, 20]), (3, [2, 3, 24]), (1, [1, 0, 9])] {
            let seen = key(window, false).seen([&lengths, &[], &[], &[]]);
            let bounds = seen.bounds().unwrap();
            assert_eq!(as_mask(&visible(&bounds, 24, 3)), seen.mask(24), "{window} {lengths:?}");
            assert_eq!(seen.end(), *lengths.iter().max().unwrap() as u64);
        }
    }

    #[test]
    fn ranges_begin_at_the_first_row_or_with_the_window() {
        let seen = |window, firsts: &[i32]| key(window, false).seen([&[9, 20, 40], firsts, &[], &[]]).ranges;
        assert_eq!(seen(0, &[4, 20, 30]), [[4..9], [20..20], [24..24]]);
        assert_eq!(seen(6, &[4, 10, -1]), [[4..9], [14..20], [24..24]]);
    }

    #[test]
    fn pages_that_follow_each_other_are_one_range_and_others_are_masked() {
        // Two sequences: pages 1, 2, 3 and 5, 0.
        let pages = [1, 2, 3, 5, 0, 0];
        let together = key(0, true).seen([&[9, 12, 4], &[], &pages, &[0, 0, 1]]);
        assert_eq!(together.ranges, [vec![4..13], vec![4..16], vec![20..24]]);
        assert!(together.bounds().is_some());
        let apart = key(0, true).seen([&[9, 7, 1], &[], &pages, &[0, 1, 1]]);
        assert_eq!((&apart.ranges[1], apart.bounds(), apart.end()), (&vec![20..24, 0..3], None, 24));
        let mask = apart.mask(24);
        let zeros = |query: usize| mask[48 * query..][..48].iter().filter(|byte| **byte == 0).count();
        assert_eq!([zeros(0), zeros(1), zeros(2)], [24 + 9, 24 + 7, 24 + 1]);
    }

    #[test]
    fn a_window_ends_at_the_last_row() {
        let seen = key(5, true).seen([&[9, 2, 0], &[], &[1, 2, 3, 0, 0, 0], &[0, 0, 0]]);
        assert_eq!(seen.ranges, [vec![8..13], vec![4..6], vec![]]);
    }

    #[test]
    fn buckets_grow_in_steps_and_end_with_the_cache() {
        let wide = MaskKey { rows: 100_000, ..key(0, false) };
        let buckets = [1, 256, 257, 2049, 5000, 99_999].map(|end| wide.bucket(end));
        assert_eq!(buckets, [256, 256, 512, 2560, 5120, 100_000]);
    }
}
