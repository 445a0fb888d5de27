//! Products on AVX2 with FMA and F16C. Their float arithmetic is, step by step, that of AVX-512.

use std::arch::x86_64::*;

use orlop_graph::DType;

use super::product::dot_row_scalar;

mod panel;
mod tiles;

pub(super) use panel::panel;
pub(super) use tiles::{dot, expand};

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
fn stored(sums: [__m256; 2]) -> [f32; 16] {
    let mut out = [0.0; 16];
    for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
        store(out, sum);
    }
    out
}

/// The products of a panel of floats with one row of activations.
#[target_feature(enable = "avx2,fma")]
pub(super) fn panel_f32(panel: &[[f32; 16]], act: &[[u8; 4]]) -> [f32; 16] {
    let mut sums = [_mm256_setzero_ps(); 2];
    for (weights, act) in panel.iter().zip(act) {
        let act = _mm256_set1_ps(f32::from_le_bytes(*act));
        for (sum, weights) in sums.iter_mut().zip(weights.as_chunks::<8>().0) {
            *sum = _mm256_fmadd_ps(load(weights), act, *sum);
        }
    }
    stored(sums)
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
