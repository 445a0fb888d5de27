//! Rounding to 8 bits.

use std::arch::x86_64::*;

use super::load_f32;
use crate::simd::eight_bit::{BLOCK_BYTES, Block, Numbers, ROUND, scale_and_inverse};

/// As the scalar code beside [`Numbers`], with the same results.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::simd) fn quantize(values: &[f32], numbers: Numbers, out: &mut [Block]) {
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let signs = _mm256_set1_epi8(if numbers.bias() == 0 { -128 } else { 0 });
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
            let [low, high] = [0, 1].map(|half: usize| {
                let scaled = _mm512_maskz_mul_ps(keep, load_f32(&values[half]), _mm512_set1_ps(inverse));
                let rounded = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(scaled, round)), bits);
                _mm512_cvtepi32_epi8(rounded)
            });
            // Sums of bytes are those of unsigned ones.
            let biased = _mm256_xor_si256(_mm256_set_m128i(high, low), _mm256_set1_epi8(-128));
            let eights = _mm256_sad_epu8(biased, _mm256_setzero_si256());
            let halves = _mm256_add_epi32(eights, _mm256_shuffle_epi32::<0b01_00_11_10>(eights));
            let first = _mm256_extract_epi32::<0>(halves) - 16 * 128;
            let second = _mm256_extract_epi32::<4>(halves) - 16 * 128;
            let mut tail = [scale.to_bits(); 4];
            for (tail, sum) in tail[1..].iter_mut().zip([first + second, first, second]) {
                *tail = numbers.kept_sum(sum, scale);
            }
            let kept = _mm256_xor_si256(biased, signs);
            let (parts, _) = block.as_chunks_mut::<{ BLOCK_BYTES / 3 }>();
            let [first, second, last] = parts else { continue };
            store_16(first, _mm256_castsi256_si128(kept));
            store_16(second, _mm256_extracti128_si256::<1>(kept));
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
