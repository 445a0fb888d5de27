//! Products in F32.

use std::arch::aarch64::*;

use orlop_graph::DType;

use super::{halves, load, load_16, load_bytes, store_16};
use crate::simd::product::dot_row_scalar;

/// Rows of activations at a time: with more, sums would not stay in registers.
const TOKENS: usize = 4;

/// The products of a panel of floats with rows of activations, in every other place of `out`.
#[target_feature(enable = "neon")]
pub(in crate::simd) fn panel_f32(panel: &[[f32; 16]], acts: &[&[[u8; 4]]], out: &mut [[f32; 16]]) {
    for (acts, out) in acts.chunks(TOKENS).zip(out.chunks_mut(2 * TOKENS)) {
        match *acts {
            [a] => rows(panel, [a], out),
            [a, b] => rows(panel, [a, b], out),
            [a, b, c] => rows(panel, [a, b, c], out),
            [a, b, c, d] => rows(panel, [a, b, c, d], out),
            _ => unreachable!("at most {TOKENS} rows"),
        }
    }
}

#[target_feature(enable = "neon")]
fn rows<const T: usize>(panel: &[[f32; 16]], acts: [&[[u8; 4]]; T], out: &mut [[f32; 16]]) {
    let acts = acts.map(|act| &act[..panel.len()]);
    let mut sums = [[vdupq_n_f32(0.0); 4]; T];
    for (k, weights) in panel.iter().enumerate() {
        let weights = load_16(weights);
        for (sums, act) in sums.iter_mut().zip(&acts) {
            let act = f32::from_le_bytes(act[k]);
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum = vfmaq_n_f32(*sum, weights, act);
            }
        }
    }
    for (out, sums) in out.iter_mut().step_by(2).zip(sums) {
        store_16(out, sums);
    }
}

/// The products of rows of weights, `bytes` long and one after the other, with rows of activations: `out` has a row for each
/// of these.
#[target_feature(enable = "neon")]
pub(in crate::simd) fn dot_rows<const N: usize>(
    dtype: DType,
    rows: &[u8],
    bytes: usize,
    acts: &[&[[u8; 4]]],
    out: &mut [[f32; N]],
) {
    match dtype {
        DType::F16 => dots(dtype, rows, bytes, acts, out, |from: &[u8; 8]| halves(from)),
        DType::BF16 => dots(dtype, rows, bytes, acts, out, |from: &[u8; 8]| {
            let words = vcreate_u16(u64::from_le_bytes(*from));
            vreinterpretq_f32_u32(vshll_n_u16::<16>(words))
        }),
        _ => dots(dtype, rows, bytes, acts, out, |from: &[u8; 16]| vreinterpretq_f32_u8(load_bytes(from))),
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn dots<const N: usize, const BYTES: usize>(
    dtype: DType,
    rows: &[u8],
    bytes: usize,
    acts: &[&[[u8; 4]]],
    out: &mut [[f32; N]],
    decode: impl Fn(&[u8; BYTES]) -> float32x4_t,
) {
    let done = bytes / BYTES * 4;
    let rest = done * dtype.block_bytes() as usize;
    for (number, row) in rows.chunks_exact(bytes).enumerate() {
        let (mut acts, mut out) = (acts, &mut *out);
        while let Some((now, later)) = acts.split_first_chunk::<TOKENS>() {
            let (to, others) = out.split_at_mut(TOKENS);
            for ((out, sum), act) in to.iter_mut().zip(block(row, *now, &decode)).zip(now) {
                out[number] = sum + dot_row_scalar(dtype, &row[rest..], &act[done..]);
            }
            (acts, out) = (later, others);
        }
        for (act, out) in acts.iter().zip(out) {
            let [sum] = block(row, [*act], &decode);
            out[number] = sum + dot_row_scalar(dtype, &row[rest..], &act[done..]);
        }
    }
}

/// The sums of products of whole vectors, which are four sums a lane, in turn.
#[inline]
#[target_feature(enable = "neon")]
fn block<const T: usize, const BYTES: usize>(
    row: &[u8],
    acts: [&[[u8; 4]]; T],
    decode: &impl Fn(&[u8; BYTES]) -> float32x4_t,
) -> [f32; T] {
    let row = row.as_chunks::<BYTES>().0;
    let acts = acts.map(|act| &act.as_chunks::<4>().0[..row.len()]);
    let mut sums = [[vdupq_n_f32(0.0); 4]; T];
    let (fours, rest) = row.as_chunks::<4>();
    for (number, four) in fours.iter().enumerate() {
        for turn in 0..4 {
            let weights = decode(&four[turn]);
            for t in 0..T {
                let act = load(&acts[t][4 * number + turn].map(f32::from_le_bytes));
                sums[t][turn] = vfmaq_f32(sums[t][turn], weights, act);
            }
        }
    }
    for (turn, row) in rest.iter().enumerate() {
        for t in 0..T {
            let act = load(&acts[t][4 * fours.len() + turn].map(f32::from_le_bytes));
            sums[t][turn] = vfmaq_f32(sums[t][turn], decode(row), act);
        }
    }
    let mut totals = [0.0; T];
    for (total, sums) in totals.iter_mut().zip(sums) {
        *total = vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])));
    }
    totals
}
