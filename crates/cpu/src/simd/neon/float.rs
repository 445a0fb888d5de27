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

/// The sum of products of a row of weights and activations.
#[target_feature(enable = "neon")]
pub(in crate::simd) fn dot_row(dtype: DType, row: &[u8], act: &[[u8; 4]]) -> f32 {
    let (sum, done) = match dtype {
        DType::F16 => row_dot(row, act, |from: &[u8; 8]| halves(from)),
        DType::BF16 => row_dot(row, act, |from: &[u8; 8]| {
            let words = vcreate_u16(u64::from_le_bytes(*from));
            vreinterpretq_f32_u32(vshll_n_u16::<16>(words))
        }),
        _ => row_dot(row, act, |from: &[u8; 16]| vreinterpretq_f32_u8(load_bytes(from))),
    };
    sum + dot_row_scalar(dtype, &row[done * dtype.block_bytes() as usize..], &act[done..])
}

/// The sum over whole vectors, and how many elements these are.
#[inline]
#[target_feature(enable = "neon")]
fn row_dot<const BYTES: usize>(
    row: &[u8],
    act: &[[u8; 4]],
    decode: impl Fn(&[u8; BYTES]) -> float32x4_t,
) -> (f32, usize) {
    let (row, act) = (row.as_chunks::<BYTES>().0, act.as_chunks::<4>().0);
    let mut sums = [vdupq_n_f32(0.0); 4];
    for (row, act) in row.chunks(4).zip(act.chunks(4)) {
        for ((sum, row), act) in sums.iter_mut().zip(row).zip(act) {
            *sum = vfmaq_f32(*sum, decode(row), load(&act.map(f32::from_le_bytes)));
        }
    }
    let sum = vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3]));
    (vaddvq_f32(sum), row.len() * 4)
}
