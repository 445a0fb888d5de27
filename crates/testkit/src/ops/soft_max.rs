//! Softmax, and masks of what lies above a diagonal.

use orlop_graph::SoftMax;

use super::coordinates::outer;
use crate::Elements;

pub(super) fn soft_max(params: &SoftMax, x: &[Elements]) -> Vec<f64> {
    let mask = params.mask.then(|| &x[1]);
    let sinks = params.sinks.then(|| &x[1 + usize::from(params.mask)]);
    let [_, rows, heads, seqs] = x[0].extents();
    let mut result = Vec::with_capacity(x[0].values().len());
    for [row, head, seq] in outer([rows, heads, seqs]) {
        let mut scores: Vec<f64> =
            x[0].row([row, head, seq]).iter().map(|x| x * f64::from(params.scale)).collect();
        if let Some(mask) = mask {
            let slope = slope(params.max_bias, heads, head);
            let hidden = mask.row([row, head % mask.extents()[2], seq % mask.extents()[3]]);
            for (score, mask) in scores.iter_mut().zip(hidden) {
                *score += slope * mask;
            }
        }
        weigh(&mut scores, sinks.map(|sinks| sinks.values()[head]));
        result.extend(scores);
    }
    result
}

/// Turns scores into weights that sum up to 1 together with the sink's. Where there is nothing but minus
/// infinity all weights are 0.
pub(super) fn weigh(scores: &mut [f64], sink: Option<f64>) {
    let larger = |max: f64, x: f64| if x > max || x.is_nan() { x } else { max };
    let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, larger);
    if max == f64::NEG_INFINITY {
        scores.fill(0.0);
        return;
    }
    for score in scores.iter_mut() {
        *score = (*score - max).exp();
    }
    let sum = scores.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - max).exp());
    for score in scores {
        *score /= sum;
    }
}

/// ALiBi's factor of the mask for a head: a geometric sequence over the largest power of two of heads, and one
/// of half the distance, odd members only, for the heads beyond.
pub(super) fn slope(max_bias: f32, heads: usize, head: usize) -> f64 {
    if max_bias <= 0.0 || heads == 0 {
        return 1.0;
    }
    let power = 1_usize << heads.ilog2();
    let exponent = if head < power {
        f64::from(max_bias) / power as f64 * (head + 1) as f64
    } else {
        f64::from(max_bias) / 2.0 / power as f64 * (2 * (head - power) + 1) as f64
    };
    (-exponent).exp2()
}

pub(super) fn diag_mask(x: &Elements, past: u32, hidden: f64) -> Vec<f64> {
    let [_, rows, c, d] = x.extents();
    let mut result = Vec::with_capacity(x.values().len());
    for [row, k, l] in outer([rows, c, d]) {
        let keep = row.saturating_add(past as usize);
        let columns = x.row([row, k, l]).iter().enumerate();
        result.extend(columns.map(|(column, x)| if column > keep { hidden } else { *x }));
    }
    result
}
