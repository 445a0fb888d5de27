//! Attention, query by query.

use orlop_graph::FlashAttention;

use super::coordinates::{outer, shared};
use super::product::dot;
use super::soft_max::{slope, weigh};
use crate::{Elements, OpFailure};

pub(super) fn flash_attention(params: &FlashAttention, x: &[Elements]) -> Result<Vec<f64>, OpFailure> {
    let (q, k, v) = (&x[0], &x[1], &x[2]);
    let [_, tokens, heads, seqs] = q.extents();
    let [_, kv, kv_heads, kv_seqs] = k.extents();
    let pages = params.page_slots().map(|slots| Pages::new(params, slots.map(|slot| &x[slot]), kv));
    let limit = pages.as_ref().map_or(kv, Pages::rows);
    let visible = visible_rows(params.kv_len_slot().map(|slot| &x[slot]), tokens, limit)?;
    let begun = match params.kv_first_slot() {
        Some(slot) => visible_rows(Some(&x[slot]), tokens, limit)?,
        None => vec![0; tokens],
    };
    let mask = params.mask_slot().map(|slot| &x[slot]);
    let sinks = params.sinks_slot().map(|slot| &x[slot]);
    let dv = v.extents()[0];
    let mut result = Vec::with_capacity(dv * heads * tokens * seqs);
    // Heads come before tokens in the result: [dv, heads, tokens, seqs].
    for [head, token, seq] in outer([heads, tokens, seqs]) {
        let (kv_head, kv_seq) = (shared(head, kv_heads, heads), shared(seq, kv_seqs, seqs));
        let slope = slope(params.max_bias, heads, head);
        let hidden = mask.map(|mask| {
            let [_, _, mask_heads, mask_seqs] = mask.extents();
            mask.row([token, head % mask_heads, seq % mask_seqs])
        });
        let first = begun[token].max(params.first_row(visible[token] as u64) as usize);
        let rows = (first..visible[token]).map(|row| match &pages {
            Some(pages) => pages.row(token, row),
            None => Ok(row),
        });
        let rows: Vec<usize> = rows.collect::<Result<_, _>>()?;
        let query = q.row([token, head, seq]);
        let score = |row: usize| {
            let bias = hidden.map_or(0.0, |mask| slope * mask[row]);
            if bias == f64::NEG_INFINITY {
                return f64::NEG_INFINITY;
            }
            cap(params.soft_cap, dot(query, k.row([row, kv_head, kv_seq])) * f64::from(params.scale)) + bias
        };
        let mut weights: Vec<f64> = rows.iter().copied().map(score).collect();
        let seen: Vec<bool> = weights.iter().map(|score| *score != f64::NEG_INFINITY).collect();
        weigh(&mut weights, sinks.map(|sinks| sinks.values()[head]));
        let mut mean = vec![0.0; dv];
        for ((row, weight), _) in rows.iter().zip(&weights).zip(&seen).filter(|(_, seen)| **seen) {
            for (sum, value) in mean.iter_mut().zip(v.row([*row, kv_head, kv_seq])) {
                *sum += weight * value;
            }
        }
        result.extend(mean);
    }
    Ok(result)
}

/// Rows of several sequences, in pages.
struct Pages<'a> {
    page_rows: usize,
    /// `[pages, sequences]`
    pages: &'a Elements,
    /// One a token.
    sequences: &'a Elements,
    /// Pages of K and V.
    count: usize,
}

impl<'a> Pages<'a> {
    fn new(params: &FlashAttention, [pages, sequences]: [&'a Elements; 2], kv: usize) -> Pages<'a> {
        let page_rows = params.page_rows as usize;
        Pages { page_rows, pages, sequences, count: kv / page_rows }
    }

    /// Rows of a sequence, at most.
    fn rows(&self) -> usize {
        self.pages.extents()[0] * self.page_rows
    }

    /// Where a row of a token's sequence lies.
    fn row(&self, token: usize, row: usize) -> Result<usize, OpFailure> {
        let index = |number: f64, count: usize| {
            let bad = OpFailure::BadIndex { index: number as i64, rows: count as u64 };
            (number >= 0.0 && number < count as f64).then_some(number as usize).ok_or(bad)
        };
        let sequence = index(self.sequences.values()[token], self.pages.extents()[1])?;
        let page = index(self.pages.row([sequence, 0, 0])[row / self.page_rows], self.count)?;
        Ok(page * self.page_rows + row % self.page_rows)
    }
}

/// How many rows of K and V each token sees.
fn visible_rows(kv_len: Option<&Elements>, tokens: usize, kv: usize) -> Result<Vec<usize>, OpFailure> {
    let Some(lengths) = kv_len else { return Ok(vec![kv; tokens]) };
    let check = |length: &f64| match *length as i64 {
        length if (0..=kv as i64).contains(&length) => Ok(length as usize),
        index => Err(OpFailure::BadIndex { index, rows: kv as u64 }),
    };
    lengths.values().iter().map(check).collect()
}

fn cap(limit: f32, x: f64) -> f64 {
    if limit == 0.0 { x } else { f64::from(limit) * (x / f64::from(limit)).tanh() }
}
