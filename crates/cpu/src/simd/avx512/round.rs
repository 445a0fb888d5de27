//! Rounding to 8 bits.

use std::arch::x86_64::*;

use super::load_f32;
use crate::simd::eight_bit::{BLOCK_BYTES, Block, Numbers, ROUND, scale_and_inverse};

/// As the scalar code beside [`Numbers`], with the same results.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::simd) fn quantize(values: &[f32], numbers: Numbers, out: &mut [Block]) {
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let bias = _mm512_set1_epi32(numbers.bias());
    let (round, bits) = (_mm512_set1_ps(ROUND), _mm512_set1_epi32(ROUND.to_bits() as i32));
    let together = numbers.together();
    let values = values.as_chunks::<16>().0.as_chunks::<2>().0.chunks(together);
    for (values, blocks) in values.zip(out.chunks_mut(together)) {
        let mut largest = _mm512_setzero_si512();
        for values in values.as_flattened() {
            let bits = _mm512_castps_si512(load_f32(values));
            largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, magnitude));
        }
        let (scale, inverse) = scale_and_inverse(_mm512_reduce_max_epu32(largest));
        let keep = if scale.is_nan() { 0 } else { 0xffff };
        for (values, block) in values.iter().zip(blocks) {
            let (mut sums, mut bytes) = ([0; 3], [_mm_setzero_si128(); 2]);
            for half in 0..2 {
                let scaled = _mm512_maskz_mul_ps(keep, load_f32(&values[half]), _mm512_set1_ps(inverse));
                let rounded = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(scaled, round)), bits);
                sums[1 + half] = _mm512_reduce_add_epi32(rounded);
                bytes[half] = _mm512_cvtepi32_epi8(_mm512_add_epi32(rounded, bias));
            }
            sums[0] = sums[1] + sums[2];
            let mut tail = [scale.to_bits(); 4];
            for (tail, sum) in tail[1..].iter_mut().zip(sums) {
                *tail = numbers.kept_sum(sum, scale);
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
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_16(to: &mut [u8; 16], value: __m128i) {
    // SAFETY: `storeu` asks for 16 writable bytes, which the array is.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
}
