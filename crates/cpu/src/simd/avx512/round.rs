//! Rounding to 8 and 16 bits.

use std::arch::x86_64::*;

use super::load_f32;
use crate::simd::activations::{Block, ROUND, Tail, largest_number, passes, scale_and_inverse};

/// As the scalar code in `activations`, with the same results.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::simd) fn quantize<const B: usize>(values: &[f32], out: &mut [Block<B>]) {
    let values = values.as_chunks::<16>().0.as_chunks::<2>().0;
    let (fours, rest) = values.as_chunks::<4>();
    let (blocks, last) = out.split_at_mut(4 * fours.len());
    for (values, blocks) in fours.iter().zip(blocks.as_chunks_mut::<4>().0) {
        match scales_and_inverses(values, largest_number(B)) {
            Some([scales, inverses]) => {
                for (number, (values, block)) in values.iter().zip(blocks).enumerate() {
                    round(values, scales[number], inverses[number], block);
                }
            }
            None => in_turn(values, blocks),
        }
    }
    in_turn(rest, last);
}

/// Values of a block.
type Values = [[f32; 16]; 2];

/// Blocks one after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn in_turn<const B: usize>(values: &[Values], out: &mut [Block<B>]) {
    for (values, block) in values.iter().zip(out) {
        let largest = _mm512_reduce_max_epu32(magnitudes(values));
        let (scale, inverse) = scale_and_inverse(largest, largest_number(B));
        round(values, scale, inverse, block);
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
fn scales_and_inverses(values: &[Values; 4], most: f32) -> Option<[[f32; 4]; 2]> {
    let [a, b, c, d] = values.each_ref().map(|values| magnitudes(values));
    let ab = _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_max_epu32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let all = _mm512_max_epu32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let half = _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    let largest = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
    let (numbers, most) = (_mm_castsi128_ps(largest), _mm_set1_ps(most));
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
fn round<const B: usize>(values: &Values, scale: f32, inverse: f32, block: &mut Block<B>) {
    let (adding, bits) = (_mm512_set1_ps(ROUND), _mm512_set1_epi32(ROUND.to_bits() as i32));
    let keep = if scale.is_nan() { 0 } else { 0xffff };
    let [low, high] = values.each_ref().map(|values| {
        let scaled = _mm512_maskz_mul_ps(keep, load_f32(values), _mm512_set1_ps(inverse));
        _mm512_cvtepi32_epi16(_mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(scaled, adding)), bits))
    });
    let mut rounded = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
    let (out, tail) = block.split_at_mut(32 * passes(B));
    let (bytes, _) = out.as_chunks_mut::<32>();
    if passes(B) == 2 {
        // A lower byte of -128 has no opposite, which AVX2 may want.
        let lowest = _mm512_slli_epi16::<8>(rounded);
        let alone = _mm512_cmpeq_epi16_mask(lowest, _mm512_set1_epi16(i16::MIN));
        rounded = _mm512_mask_sub_epi16(rounded, alone, rounded, _mm512_set1_epi16(1));
        let upper = _mm512_add_epi16(rounded, _mm512_set1_epi16(128));
        store_32(&mut bytes[0], _mm512_cvtepi16_epi8(_mm512_srli_epi16::<8>(upper)));
        store_32(&mut bytes[1], _mm512_cvtepi16_epi8(rounded));
    } else {
        store_32(&mut bytes[0], _mm512_cvtepi16_epi8(rounded));
    }
    tail.copy_from_slice(Tail::bytes(scale, sums_of_halves(rounded)).as_flattened());
}

/// The sums of the first 16 of 32 numbers, and of the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn sums_of_halves(numbers: __m512i) -> [i32; 2] {
    let twos = _mm512_madd_epi16(numbers, _mm512_set1_epi16(1));
    let (first, second) = (_mm512_castsi512_si256(twos), _mm512_extracti64x4_epi64::<1>(twos));
    let fours = _mm256_hadd_epi32(first, second);
    let eights = _mm256_hadd_epi32(fours, fours);
    let all = _mm_add_epi32(_mm256_castsi256_si128(eights), _mm256_extracti128_si256::<1>(eights));
    [_mm_extract_epi32::<0>(all), _mm_extract_epi32::<1>(all)]
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn store_32(to: &mut [u8; 32], value: __m256i) {
    // SAFETY: `storeu` asks for 32 writable bytes, which the array is.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
}
