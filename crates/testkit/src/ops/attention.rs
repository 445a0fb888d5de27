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
    let visible = visible_rows(params.kv_len_slot().map(|slot| &x[slot]), tokens, kv)?;
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
        let query = q.row([token, head, seq]);
        let score = |row: usize| {
            let bias = hidden.map_or(0.0, |mask| slope * mask[row]);
            if bias == f64::NEG_INFINITY {
                return f64::NEG_INFINITY;
            }
            cap(params.soft_cap, dot(query, k.row([row, kv_head, kv_seq])) * f64::from(params.scale)) + bias
        };
        let first = params.first_row(visible[token] as u64) as usize;
        let score = |row: usize| if row < first { f64::NEG_INFINITY } else { score(row) };
        let mut weights: Vec<f64> = (0..visible[token]).map(score).collect();
        let seen: Vec<bool> = weights.iter().map(|score| *score != f64::NEG_INFINITY).collect();
        weigh(&mut weights, sinks.map(|sinks| sinks.values()[head]));
        let mut mean = vec![0.0; dv];
        for (row, weight) in weights.iter().enumerate().filter(|(row, _)| seen[*row]) {
            for (sum, value) in mean.iter_mut().zip(v.row([row, kv_head, kv_seq])) {
                *sum += weight * value;
            }
        }
        result.extend(mean);
    }
    Ok(result)
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
