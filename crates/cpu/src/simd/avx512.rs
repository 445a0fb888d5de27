//! Products on AVX-512 with VNNI.

mod float;
mod panel;
mod round;
mod tiles;

pub(super) use float::{dot_rows, panel_f32, transpose};
pub(super) use panel::panel;
pub(super) use round::quantize;
pub(super) use tiles::run;

use std::arch::x86_64::*;

use super::activations::{Block, four_at};

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load_f32(from: &[f32; 16]) -> __m512 {
    // SAFETY: `loadu` asks for 16 readable floats, which the array is.
    unsafe { _mm512_loadu_ps(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn store_f32(to: &mut [f32; 16], value: __m512) {
    // SAFETY: `storeu` asks for 16 writable floats, which the array is.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_bytes(from: &[u8; 64]) -> __m512i {
    // SAFETY: `loadu` asks for 64 readable bytes, which the array is.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_32(from: &[u8; 32]) -> __m256i {
    // SAFETY: `loadu` asks for 32 readable bytes, which the array is.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_16(from: &[u8; 16]) -> __m128i {
    // SAFETY: `loadu` asks for 16 readable bytes, which the array is.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

/// The bytes of four numbers of a block that meet weights in a pass, for every row.
#[inline]
#[target_feature(enable = "avx512f")]
fn four<const B: usize>(block: &Block<B>, pass: usize, k: usize) -> __m512i {
    _mm512_set1_epi32(four_at(block, pass, k))
}
