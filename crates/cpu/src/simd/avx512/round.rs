//! Rounding to 8 bits.

use std::arch::x86_64::*;

use super::load_f32;
use crate::simd::eight_bit::{BLOCK_BYTES, Block, Numbers, ROUND, scale_and_inverse};

/// As the scalar code beside [`Numbers`], with the same results.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::simd) fn quantize(values: &[f32], numbers: Numbers, out: &mut [Block]) {
    let values = values.as_chunks::<16>().0.as_chunks::<2>().0;
    if numbers.together() > 1 {
        return in_turn(values, numbers, out);
    }
    let (fours, rest) = values.as_chunks::<4>();
    let (blocks, last) = out.split_at_mut(4 * fours.len());
    for (values, blocks) in fours.iter().zip(blocks.as_chunks_mut::<4>().0) {
        match scales_and_inverses(values) {
            Some([scales, inverses]) => {
                for (number, (values, block)) in values.iter().zip(blocks).enumerate() {
                    round(values, scales[number], inverses[number], numbers, block);
                }
            }
            None => in_turn(values, numbers, blocks),
        }
    }
    in_turn(rest, numbers, last);
}

/// Values of a block.
type Values = [[f32; 16]; 2];

/// Blocks with a scale of their own, or a few with the same, one after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn in_turn(values: &[Values], numbers: Numbers, out: &mut [Block]) {
    let together = numbers.together();
    for (values, blocks) in values.chunks(together).zip(out.chunks_mut(together)) {
        let largest = values
            .iter()
            .fold(_mm512_setzero_si512(), |all, values| _mm512_max_epu32(all, magnitudes(values)));
        let (scale, inverse) = scale_and_inverse(_mm512_reduce_max_epu32(largest));
        for (values, block) in values.iter().zip(blocks) {
            round(values, scale, inverse, numbers, block);
        }
    }
}

/// The larger of each two magnitudes of a block, as bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn magnitudes(values: &Values) -> __m512i {
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let [first, second] = values.each_ref().map(|values| _mm512_castps_si512(load_f32(values)));
    _mm512_max_epu32(_mm512_and_si512(first, magnitude), _mm512_and_si512(second, magnitude))
}

/// Those of four blocks, if they are numbers and none is too small to be told from 0.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn scales_and_inverses(values: &[Values; 4]) -> Option<[[f32; 4]; 2]> {
    let [a, b, c, d] = values.each_ref().map(|values| magnitudes(values));
    let ab = _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_max_epu32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let all = _mm512_max_epu32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let half = _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    let largest = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
    let (numbers, most) = (_mm_castsi128_ps(largest), _mm_set1_ps(127.0));
    let (scales, inverses) = (_mm_div_ps(numbers, most), _mm_div_ps(most, numbers));
    let infinite = _mm_set1_epi32(0x7f80_0000);
    let plain =
        _mm_cmplt_epu32_mask(largest, infinite) & _mm_cmplt_epu32_mask(_mm_castps_si128(inverses), infinite);
    let array = |floats: __m128| -> [f32; 4] {
        let mut array = [0.0; 4];
        // SAFETY: `storeu` asks for 4 writable floats, which the array is.
        unsafe { _mm_storeu_ps(array.as_mut_ptr(), floats) };
        array
    };
    (plain == 0b1111).then(|| [array(scales), array(inverses)])
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn round(values: &Values, scale: f32, inverse: f32, numbers: Numbers, block: &mut Block) {
    let (adding, bits) = (_mm512_set1_ps(ROUND), _mm512_set1_epi32(ROUND.to_bits() as i32));
    let keep = if scale.is_nan() { 0 } else { 0xffff };
    let [low, high] = values.each_ref().map(|values| {
        let scaled = _mm512_maskz_mul_ps(keep, load_f32(values), _mm512_set1_ps(inverse));
        let rounded = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(scaled, adding)), bits);
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
    let signs = _mm256_set1_epi8(if numbers.bias() == 0 { -128 } else { 0 });
    let kept = _mm256_xor_si256(biased, signs);
    let (parts, _) = block.as_chunks_mut::<{ BLOCK_BYTES / 3 }>();
    let [first, second, last] = parts else { return };
    store_16(first, _mm256_castsi256_si128(kept));
    store_16(second, _mm256_extracti128_si256::<1>(kept));
    for (to, word) in last.as_chunks_mut::<4>().0.iter_mut().zip(tail) {
        *to = word.to_le_bytes();
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_16(to: &mut [u8; 16], value: __m128i) {
    // SAFETY: `storeu` asks for 16 writable bytes, which the array is.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
}
