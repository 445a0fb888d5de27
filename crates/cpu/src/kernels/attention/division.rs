//! How attention is divided: queries into tiles, and the KV rows that a query sees into parts.
//!
//! A query's parts depend on nothing but the rows that it sees, so its result is the same alone and in company.

use std::ops::Range;

use orlop_graph::{FlashAttention, Op, TensorDesc};

use super::nth;
use crate::access::Src;

/// Queries in a tile, at most.
pub(super) const TILE: usize = 64;
/// KV rows in a block. Blocks begin at multiples of this, and lie within a page.
pub(super) const BLOCK: usize = 64;
/// KV rows in a part, at least.
const PART: u64 = 256;
/// Parts of as many rows as a query sees.
const PARTS: u64 = 32;
/// Parts of a query: as rows begin and end within parts, one more.
pub(super) const MAX_PARTS: u64 = PARTS + 1;
/// Pieces of work below which the parts of a tile are computed by several threads.
const PIECES: u64 = 32;
/// Floats of partial results, at most, if there are several tokens.
const MAX_PARTIAL: u64 = 1 << 19;

/// The KV rows that a query sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Visible {
    pub(super) first: u64,
    pub(super) end: u64,
}

impl Visible {
    /// Rows of a part: more of them where a query sees many, so that the number of parts is limited.
    pub(super) fn part_rows(self) -> u64 {
        let mut rows = PART;
        while rows * PARTS < self.end - self.first {
            rows *= 2;
        }
        rows
    }

    /// Numbers of the parts that these rows lie in.
    pub(super) fn parts(self) -> Range<u64> {
        let rows = self.part_rows();
        if self.first == self.end { 0..0 } else { self.first / rows..(self.end - 1) / rows + 1 }
    }
}

/// Sizes of an attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) tokens: u64,
    /// Query heads for each KV head.
    pub(super) group: u64,
    pub(super) kv_heads: u64,
    pub(super) seqs: u64,
    /// Sequences of queries that share one of K and V.
    pub(super) share: u64,
    pub(super) dv: u64,
}

impl Sizes {
    pub(super) fn new(operands: &[&TensorDesc; 3]) -> Sizes {
        let [q, k, v] = operands;
        let [_, tokens, heads, seqs] = q.extents;
        let kv_heads = k.extents[2];
        let group = heads.checked_div(kv_heads).unwrap_or(0);
        let share = seqs.checked_div(k.extents[3]).unwrap_or(1);
        Sizes { tokens, group, kv_heads, seqs, share, dv: v.extents[0] }
    }

    /// Queries of all heads.
    pub(super) fn queries(&self) -> u64 {
        self.tokens.saturating_mul(self.group).saturating_mul(self.kv_heads).saturating_mul(self.seqs)
    }

    /// Queries in the largest tile.
    pub(super) fn largest(&self) -> u64 {
        (TILE as u64).min(self.tokens.saturating_mul(self.group))
    }

    /// Whether threads compute parts of tiles ([Flash-Decoding](https://pytorch.org/blog/flash-decoding/)), which a second
    /// phase merges.
    pub(super) fn splits(&self) -> bool {
        let pieces = self.tokens.saturating_mul(self.kv_heads).saturating_mul(self.seqs);
        pieces < PIECES && (self.tokens <= 1 || self.partial().0 * self.partial().1 <= MAX_PARTIAL)
    }

    /// Rows of partial results, and floats in each: sums, the largest score, and the sum of weights.
    pub(super) fn partial(&self) -> (u64, u64) {
        (self.queries().saturating_mul(MAX_PARTS), self.dv.saturating_add(2))
    }
}

/// An attention and its operands.
#[derive(Clone, Copy)]
pub(super) struct Attention<'a> {
    pub(super) params: FlashAttention,
    pub(super) src: &'a [Src],
    pub(super) sizes: Sizes,
}

impl<'a> Attention<'a> {
    pub(super) fn new(op: &Op, src: &'a [Src]) -> Option<Attention<'a>> {
        let Op::FlashAttention(params) = *op else { return None };
        let [q, k, v, ..] = src else { return None };
        Some(Attention { params, src, sizes: Sizes::new(&[&q.desc, &k.desc, &v.desc]) })
    }

    /// Rows that a sequence may have.
    pub(super) fn max_rows(&self) -> u64 {
        match self.params.page_slots() {
            Some([pages, _]) => self.src[pages].desc.extents[0].saturating_mul(self.params.page_rows.into()),
            None => self.src[1].desc.extents[1],
        }
    }

    pub(super) fn visible(&self, token: u64) -> Visible {
        let end = match self.params.kv_len_slot() {
            Some(slot) => nth(&self.src[slot], token) as u64,
            None => self.src[1].desc.extents[1],
        };
        let first = self.params.first_row(end);
        match self.params.kv_first_slot() {
            Some(slot) => Visible { first: first.max(nth(&self.src[slot], token) as u64).min(end), end },
            None => Visible { first, end },
        }
    }

    /// The sequence whose pages a token's rows lie in.
    pub(super) fn sequence(&self, token: u64) -> u64 {
        self.params.page_slots().map_or(0, |[_, sequences]| nth(&self.src[sequences], token) as u64)
    }

    /// Where a row of a sequence lies in K and V, and the rows of its block after it.
    pub(super) fn row(&self, sequence: u64, row: u64) -> u64 {
        let Some([pages, _]) = self.params.page_slots() else { return row };
        let page_rows = u64::from(self.params.page_rows);
        let page = self.src[pages].integer(row / page_rows, [sequence, 0, 0]) as u64;
        page * page_rows + row % page_rows
    }

    /// The queries of one KV head in tiles, by their numbers: heads first, then tokens. The queries of a tile belong to one
    /// sequence, and their parts have the same size.
    pub(super) fn tiles(&self) -> impl Iterator<Item = Range<u64>> {
        let Sizes { tokens, group, .. } = self.sizes;
        let kind = |token: u64| (self.sequence(token), self.visible(token).part_rows());
        let alike = self.params.kv_len_slot().is_none() && self.params.page_slots().is_none();
        let (all, mut next) = (tokens * group, 0);
        std::iter::from_fn(move || {
            if next >= all {
                return None;
            }
            let limit = all.min(next + TILE as u64);
            let first = divided(next, group).0;
            let end = if alike || (first + 1) * group >= limit {
                limit
            } else {
                let expected = kind(first);
                let same = |token: &u64| token * group < limit && kind(*token) == expected;
                let tokens = (first + 1..).take_while(same).last().unwrap_or(first);
                limit.min((tokens + 1) * group)
            };
            let tile = next..end;
            next = end;
            Some(tile)
        })
    }

    /// The rows that queries of a tile see, from the first that one of them does to the last.
    pub(super) fn visible_to(&self, queries: &Range<u64>) -> Visible {
        let token = |query: u64| divided(query, self.sizes.group).0;
        let each = (token(queries.start)..token(queries.end - 1) + 1).map(|token| self.visible(token));
        each.filter(|visible| visible.first < visible.end)
            .reduce(|a, b| Visible { first: a.first.min(b.first), end: a.end.max(b.end) })
            .unwrap_or_default()
    }

    /// Rows of a part of the queries of a tile.
    pub(super) fn part_rows(&self, queries: &Range<u64>) -> u64 {
        self.visible(divided(queries.start, self.sizes.group).0).part_rows()
    }
}

/// Quotient and remainder. Divisions are slow and rarely needed.
pub(super) fn divided(a: u64, b: u64) -> (u64, u64) {
    match b {
        1 => (a, 0),
        _ if a < b => (0, a),
        _ => (a / b, a % b),
    }
}
