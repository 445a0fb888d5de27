//! Rounding to 8 bits.

use std::arch::x86_64::*;

use super::load_f32;
use crate::simd::eight_bit::{BLOCK_BYTES, Block, Numbers, ROUND};

/// As the scalar code beside [`Numbers`], with the same results.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::simd) fn quantize(values: &[f32], numbers: Numbers, out: &mut [Block]) {
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let bias = _mm512_set1_epi32(if numbers == Numbers::Biased { 128 } else { 0 });
    let (round, bits) = (_mm512_set1_ps(ROUND), _mm512_set1_epi32(ROUND.to_bits() as i32));
    for (values, block) in values.as_chunks::<16>().0.as_chunks::<2>().0.iter().zip(out) {
        let values = [load_f32(&values[0]), load_f32(&values[1])];
        let a = _mm512_and_si512(_mm512_castps_si512(values[0]), magnitude);
        let b = _mm512_and_si512(_mm512_castps_si512(values[1]), magnitude);
        let largest = _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
        let inverse = 127.0 / f32::from_bits(largest);
        let finite = largest < 0x7f80_0000;
        let (scale, inverse) = match finite {
            true if inverse.is_finite() => (f32::from_bits(largest) / 127.0, inverse),
            true => (0.0, 0.0),
            false => (f32::NAN, 0.0),
        };
        let keep = if finite { 0xffff } else { 0 };
        let (mut sums, mut bytes) = ([0; 3], [_mm_setzero_si128(); 2]);
        for half in 0..2 {
            let scaled = _mm512_maskz_mul_ps(keep, values[half], _mm512_set1_ps(inverse));
            let rounded = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(scaled, round)), bits);
            sums[1 + half] = _mm512_reduce_add_epi32(rounded);
            bytes[half] = _mm512_cvtepi32_epi8(_mm512_add_epi32(rounded, bias));
        }
        sums[0] = sums[1] + sums[2];
        let mut tail = [scale.to_bits(); 4];
        for (tail, sum) in tail[1..].iter_mut().zip(sums) {
            *tail = match numbers {
                Numbers::Signed => sum as u32,
                Numbers::Biased => (scale * sum as f32).to_bits(),
            };
        }
        let (parts, _) = block.as_chunks_mut::<{ BLOCK_BYTES / 3 }>();
        let [first, second, last] = parts else { continue };
        store_16(first, bytes[0]);
        store_16(second, bytes[1]);
        for (to, word) in last.as_chunks_mut::<4>().0.iter_mut().zip(tail) {
            *to = word.to_le_bytes();
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_16(to: &mut [u8; 16], value: __m128i) {
    // SAFETY: `storeu` asks for 16 writable bytes, which the array is.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
}
