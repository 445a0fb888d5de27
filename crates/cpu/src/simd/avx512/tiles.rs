//! Vectors of AVX-512 for tiles.

use std::arch::x86_64::*;

use super::{load_16, load_32, load_bytes, store_f32};
use crate::simd::tile_vector::{PartWork, TileVector, TileWork, forward_to_functions};

type Bytes = __m512i;
type Ints = __m512i;
type Floats = __m512;

/// Proof of AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has the instructions.
    #[inline(always)]
    pub(super) unsafe fn new() -> Avx512 {
        Avx512(())
    }
}

impl TileVector for Avx512 {
    const LARGEST_CODE: i32 = 255;

    forward_to_functions! {}
}

/// Runs a loop over tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(in crate::simd) fn run(work: impl TileWork) {
    // SAFETY: `new` asks for the instructions of this function.
    work.run(unsafe { Avx512::new() });
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn call(part: impl PartWork<Avx512>) {
    // SAFETY: as above.
    part.run(unsafe { Avx512::new() });
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[u8; 64]) -> Bytes {
    load_bytes(from)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn low_nibbles(v: Bytes) -> Bytes {
    _mm512_and_si512(v, _mm512_set1_epi8(15))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn high_nibbles(v: Bytes) -> Bytes {
    _mm512_and_si512(_mm512_srli_epi32(v, 4), _mm512_set1_epi8(15))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn bit_pairs<const NUMBER: u32>(v: Bytes) -> Bytes {
    _mm512_and_si512(_mm512_srlv_epi32(v, _mm512_set1_epi32(2 * NUMBER as i32)), _mm512_set1_epi8(3))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn join_bit_pair<const NUMBER: u32>(low: Bytes, pairs: Bytes) -> Bytes {
    let pair = match NUMBER {
        0 => _mm512_slli_epi32::<4>(pairs),
        1 => _mm512_slli_epi32::<2>(pairs),
        2 => pairs,
        _ => _mm512_srli_epi32::<2>(pairs),
    };
    // low | pair & mask
    _mm512_ternarylogic_epi32::<0xf8>(low, pair, _mm512_set1_epi8(0x30))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn flip_signs(v: Bytes) -> Bytes {
    _mm512_xor_si512(v, _mm512_set1_epi8(-128))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn look_up(indices: Bytes, table: &[u8; 16]) -> Bytes {
    _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16(table)), indices)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add_bit<const BIT: u8>(v: Bytes, mask: u64) -> Bytes {
    _mm512_mask_add_epi8(v, mask, v, _mm512_set1_epi8(BIT as i8))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn signed_byte<const NUMBER: u32>(v: Bytes) -> Ints {
    _mm512_srai_epi32::<24>(_mm512_sllv_epi32(v, _mm512_set1_epi32(24 - 8 * NUMBER as i32)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_f16(from: &[u8; 32]) -> Floats {
    _mm512_cvtph_ps(load_32(from))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_exponents(from: &[u8; 16]) -> Floats {
    let bytes = _mm512_cvtepu8_epi32(load_16(from));
    let normal = _mm512_slli_epi32(_mm512_sub_epi32(bytes, _mm512_set1_epi32(1)), 23);
    let denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), bytes);
    let small = _mm512_cmplt_epu32_mask(bytes, _mm512_set1_epi32(2));
    _mm512_castsi512_ps(_mm512_mask_blend_epi32(small, normal, denormal))
}

/// The bits as those of floats whose exponent has another bias; the factor makes up for it.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_small_floats(from: &[u8; 16]) -> Floats {
    let bytes = _mm512_cvtepu8_epi32(load_16(from));
    let known = _mm512_cmpneq_epi32_mask(bytes, _mm512_set1_epi32(0x7f));
    let bits = _mm512_slli_epi32(_mm512_and_si512(bytes, _mm512_set1_epi32(0x7f)), 20);
    let factor = _mm512_castsi512_ps(_mm512_set1_epi32((127 + 119) << 23));
    _mm512_maskz_mul_ps(known, _mm512_castsi512_ps(bits), factor)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_unsigned(from: &[u8; 16]) -> Ints {
    _mm512_cvtepu8_epi32(load_16(from))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_signed(from: &[u8; 16]) -> Ints {
    _mm512_cvtepi8_epi32(load_16(from))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_nibbles<const SHIFT: u32>(from: &[u8; 16]) -> Ints {
    let shifted = _mm512_srlv_epi32(load_unsigned(from), _mm512_set1_epi32(SHIFT as i32));
    _mm512_and_si512(shifted, _mm512_set1_epi32(15))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn to_floats(v: Ints) -> Floats {
    _mm512_cvtepi32_ps(v)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn mul(a: Floats, b: Floats) -> Floats {
    _mm512_mul_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn negative(a: Floats) -> Floats {
    _mm512_xor_ps(a, _mm512_set1_ps(-0.0))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn zero() -> Floats {
    _mm512_setzero_ps()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn minus(codes: Bytes, bias: i32) -> Bytes {
    _mm512_sub_epi8(codes, _mm512_set1_epi8(bias as i8))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat_int(value: i32) -> Ints {
    _mm512_set1_epi32(value)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn join_passes(upper: Ints, lower: Ints) -> Ints {
    _mm512_add_epi32(_mm512_slli_epi32::<8>(upper), lower)
}

/// The bias is 0: all codes can be multiplied as unsigned numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add_products(sums: Ints, codes: Bytes, bias: i32, four: i32) -> Ints {
    debug_assert_eq!(bias, 0);
    _mm512_dpbusd_epi32(sums, codes, _mm512_set1_epi32(four))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(value: f32) -> Floats {
    _mm512_set1_ps(value)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn mul_add(a: Floats, b: Floats, c: Floats) -> Floats {
    _mm512_fmadd_ps(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [f32; 16], value: Floats) {
    store_f32(to, value);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_bytes(to: &mut [f32; 16], value: Bytes) {
    store_f32(to, _mm512_castsi512_ps(value));
}
