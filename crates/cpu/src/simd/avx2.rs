//! Products on AVX2 with FMA and F16C. Their float arithmetic is, step by step, that of AVX-512.

use std::arch::x86_64::*;

use orlop_graph::DType;

use super::product::dot_row_scalar;

mod panel;
mod tiles;

pub(super) use panel::panel;
pub(super) use tiles::run;

#[inline]
#[target_feature(enable = "avx2")]
fn load(from: &[f32; 8]) -> __m256 {
    // SAFETY: `loadu` asks for 8 readable floats, which the array is.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [f32; 8], value: __m256) {
    // SAFETY: `storeu` asks for 8 writable floats, which the array is.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_bytes(from: &[u8; 32]) -> __m256i {
    // SAFETY: `loadu` asks for 32 readable bytes, which the array is.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_16(from: &[u8; 16]) -> __m128i {
    // SAFETY: `loadu` asks for 16 readable bytes, which the array is.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_16(to: &mut [f32; 16], value: [__m256; 2]) {
    let halves = to.as_chunks_mut::<8>().0;
    store(&mut halves[0], value[0]);
    store(&mut halves[1], value[1]);
}

/// The products of a panel of floats with rows of activations, in every other place of `out`. With more than four rows at
/// a time, sums would not stay in registers.
#[target_feature(enable = "avx2,fma")]
pub(super) fn panel_f32(panel: &[[f32; 16]], acts: &[&[[u8; 4]]], out: &mut [[f32; 16]]) {
    for (acts, out) in acts.chunks(4).zip(out.chunks_mut(8)) {
        match *acts {
            [a] => panel_rows(panel, [a], out),
            [a, b] => panel_rows(panel, [a, b], out),
            [a, b, c] => panel_rows(panel, [a, b, c], out),
            [a, b, c, d] => panel_rows(panel, [a, b, c, d], out),
            _ => unreachable!("at most four rows"),
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn panel_rows<const T: usize>(panel: &[[f32; 16]], acts: [&[[u8; 4]]; T], out: &mut [[f32; 16]]) {
    let acts = acts.map(|act| &act[..panel.len()]);
    let mut sums = [[_mm256_setzero_ps(); 2]; T];
    for (k, weights) in panel.iter().enumerate() {
        let halves = weights.as_chunks::<8>().0;
        let weights = [load(&halves[0]), load(&halves[1])];
        for (sums, act) in sums.iter_mut().zip(&acts) {
            let act = _mm256_set1_ps(f32::from_le_bytes(act[k]));
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum = _mm256_fmadd_ps(weights, act, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().step_by(2).zip(sums) {
        store_16(out, sums);
    }
}

/// Rows of weights, and of activations, at a time: with more, sums would not stay in registers.
const ROWS: usize = 2;
const TOKENS: usize = 3;

/// The products of rows of weights, `bytes` long and one after the other, with rows of activations: `out` has a row for each
/// of these.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot_rows<const N: usize>(
    dtype: DType,
    rows: &[u8],
    bytes: usize,
    acts: &[&[[u8; 4]]],
    out: &mut [[f32; N]],
) {
    match dtype {
        DType::F16 => dots(dtype, rows, bytes, acts, out, |from: &[u8; 16]| _mm256_cvtph_ps(load_16(from))),
        DType::BF16 => dots(dtype, rows, bytes, acts, out, |from: &[u8; 16]| {
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(from)), 16))
        }),
        _ => dots(dtype, rows, bytes, acts, out, |from: &[u8; 32]| _mm256_castsi256_ps(load_bytes(from))),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots<const N: usize, const BYTES: usize>(
    dtype: DType,
    rows: &[u8],
    bytes: usize,
    acts: &[&[[u8; 4]]],
    out: &mut [[f32; N]],
    load: impl Fn(&[u8; BYTES]) -> __m256,
) {
    for (number, rows) in rows.chunks(ROWS * bytes).enumerate() {
        let first = &rows[..bytes];
        let second = rows.get(bytes..).filter(|row| !row.is_empty()).unwrap_or(first);
        for (acts, out) in acts.chunks(TOKENS).zip(out.chunks_mut(TOKENS)) {
            let all = [acts[0], *acts.get(1).unwrap_or(&acts[0]), *acts.get(2).unwrap_or(&acts[0])];
            let sums = match acts.len() {
                1 => {
                    let [sums] = block([first, second], [all[0]], &load);
                    [sums; TOKENS]
                }
                _ => block([first, second], all, &load),
            };
            let done = bytes / BYTES * 8;
            let rest = done * dtype.block_bytes() as usize;
            for ((out, sums), act) in out.iter_mut().zip(sums).zip(acts) {
                for ((out, sum), row) in out[ROWS * number..].iter_mut().zip(sums).zip(rows.chunks(bytes)) {
                    *out = sum + dot_row_scalar(dtype, &row[rest..], &act[done..]);
                }
            }
        }
    }
}

/// The sums of products of whole vectors: those of even vectors, plus those of odd ones, and of their lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn block<const T: usize, const BYTES: usize>(
    rows: [&[u8]; ROWS],
    acts: [&[[u8; 4]]; T],
    load_weights: &impl Fn(&[u8; BYTES]) -> __m256,
) -> [[f32; ROWS]; T] {
    let rows = rows.map(|row| row.as_chunks::<BYTES>().0);
    let acts = acts.map(|act| act.as_flattened().as_chunks::<32>().0);
    let (pairs, last) = (rows[0].len() / 2, rows[0].len() / 2 * 2);
    let rows_by_two = rows.map(|row| &row.as_chunks::<2>().0[..pairs]);
    let acts_by_two = acts.map(|act| &act.as_chunks::<2>().0[..pairs]);
    let mut sums = [[[_mm256_setzero_ps(); ROWS]; T]; 2];
    for k in 0..pairs {
        for turn in 0..2 {
            let weights = [load_weights(&rows_by_two[0][k][turn]), load_weights(&rows_by_two[1][k][turn])];
            for t in 0..T {
                let act = _mm256_castsi256_ps(load_bytes(&acts_by_two[t][k][turn]));
                sums[turn][t][0] = _mm256_fmadd_ps(weights[0], act, sums[turn][t][0]);
                sums[turn][t][1] = _mm256_fmadd_ps(weights[1], act, sums[turn][t][1]);
            }
        }
    }
    if last < rows[0].len() {
        for t in 0..T {
            let act = _mm256_castsi256_ps(load_bytes(&acts[t][last]));
            for (sum, row) in sums[0][t].iter_mut().zip(rows) {
                *sum = _mm256_fmadd_ps(load_weights(&row[last]), act, *sum);
            }
        }
    }
    let mut totals = [[0.0; ROWS]; T];
    for (t, totals) in totals.iter_mut().enumerate() {
        for (row, total) in totals.iter_mut().enumerate() {
            let mut lanes = [0.0; 8];
            store(&mut lanes, _mm256_add_ps(sums[0][t][row], sums[1][t][row]));
            *total = lanes.iter().sum();
        }
    }
    totals
}
