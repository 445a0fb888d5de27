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

/// The sum of products of a row of weights and activations.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn dot_row(dtype: DType, row: &[u8], act: &[[u8; 4]]) -> f32 {
    let (sum, done) = match dtype {
        DType::F16 => row_dot(row, act, |from: &[u8; 16]| _mm256_cvtph_ps(load_16(from))),
        DType::BF16 => row_dot(row, act, |from: &[u8; 16]| {
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(from)), 16))
        }),
        _ => row_dot(row, act, |from: &[u8; 32]| _mm256_castsi256_ps(load_bytes(from))),
    };
    sum + dot_row_scalar(dtype, &row[done * dtype.block_bytes() as usize..], &act[done..])
}

/// The sum over whole vectors, and how many elements these are.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn row_dot<const BYTES: usize>(
    row: &[u8],
    act: &[[u8; 4]],
    load: impl Fn(&[u8; BYTES]) -> __m256,
) -> (f32, usize) {
    let (row, act) = (row.as_chunks::<BYTES>().0, act.as_flattened().as_chunks::<32>().0);
    let mut sums = [_mm256_setzero_ps(); 4];
    for (row, act) in row.chunks(4).zip(act.chunks(4)) {
        for ((sum, row), act) in sums.iter_mut().zip(row).zip(act) {
            *sum = _mm256_fmadd_ps(load(row), _mm256_castsi256_ps(load_bytes(act)), *sum);
        }
    }
    let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
    let mut lanes = [0.0; 8];
    store(&mut lanes, sum);
    (lanes.iter().sum(), row.len() * 8)
}
