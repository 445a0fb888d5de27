//! Vectors of AVX2 for tiles: two halves each.

use std::arch::x86_64::*;

use super::{load_16, load_bytes, store_16};
use crate::simd::tile_vector::{PartWork, TileVector, TileWork, forward_to_functions};

type Bytes = [__m256i; 2];
type Ints = [__m256i; 2];
type Floats = [__m256; 2];

/// Proof of AVX2, FMA and F16C.
#[derive(Clone, Copy)]
struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has the instructions.
    #[inline(always)]
    unsafe fn new() -> Avx2 {
        Avx2(())
    }
}

impl TileVector for Avx2 {
    /// Sums of two products with signed bytes have to fit 16 bits.
    const LARGEST_CODE: i32 = 63;

    forward_to_functions! {}
}

/// Runs a loop over tiles.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::simd) fn run(work: impl TileWork) {
    // SAFETY: `new` asks for the instructions of this function.
    work.run(unsafe { Avx2::new() });
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn call(part: impl PartWork<Avx2>) {
    // SAFETY: as above.
    part.run(unsafe { Avx2::new() });
}

/// Sums of four products of unsigned numbers, below 64, and signed ones.
#[inline]
#[target_feature(enable = "avx2")]
fn fours(codes: __m256i, signed: __m256i) -> __m256i {
    _mm256_madd_epi16(_mm256_maddubs_epi16(codes, signed), _mm256_set1_epi16(1))
}

/// Sums of four products of signed numbers: 128 * 127 * 2 stays below what 16 bits hold.
#[inline]
#[target_feature(enable = "avx2")]
fn fours_signed(weights: __m256i, signed: __m256i) -> __m256i {
    fours(_mm256_abs_epi8(weights), _mm256_sign_epi8(signed, weights))
}

#[inline]
#[target_feature(enable = "avx2")]
fn minus(codes: Bytes, bias: i32) -> Bytes {
    let bias = _mm256_set1_epi8(bias as i8);
    [_mm256_sub_epi8(codes[0], bias), _mm256_sub_epi8(codes[1], bias)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_products(mut sums: Ints, codes: Bytes, bias: i32, four: i32) -> Ints {
    let (four, weights) = (_mm256_set1_epi32(four), minus(codes, bias));
    for half in 0..2 {
        let fours = if bias == 0 { fours(codes[half], four) } else { fours_signed(weights[half], four) };
        sums[half] = _mm256_add_epi32(sums[half], fours);
    }
    sums
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat_int(value: i32) -> Ints {
    [_mm256_set1_epi32(value); 2]
}

#[inline]
#[target_feature(enable = "avx2")]
fn join_passes(upper: Ints, lower: Ints) -> Ints {
    [
        _mm256_add_epi32(_mm256_slli_epi32::<8>(upper[0]), lower[0]),
        _mm256_add_epi32(_mm256_slli_epi32::<8>(upper[1]), lower[1]),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(value: f32) -> Floats {
    [_mm256_set1_ps(value); 2]
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn mul_add(a: Floats, b: Floats, c: Floats) -> Floats {
    [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [f32; 16], value: Floats) {
    store_16(to, value);
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_bytes(to: &mut [f32; 16], value: Bytes) {
    store_16(to, floats(value));
}

#[inline]
#[target_feature(enable = "avx2")]
fn floats(v: Bytes) -> Floats {
    [_mm256_castsi256_ps(v[0]), _mm256_castsi256_ps(v[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(from: &[u8; 64]) -> Bytes {
    let halves = from.as_chunks().0;
    [load_bytes(&halves[0]), load_bytes(&halves[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn low_nibbles(v: Bytes) -> Bytes {
    let mask = _mm256_set1_epi8(15);
    [_mm256_and_si256(v[0], mask), _mm256_and_si256(v[1], mask)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn high_nibbles(v: Bytes) -> Bytes {
    low_nibbles([_mm256_srli_epi32::<4>(v[0]), _mm256_srli_epi32::<4>(v[1])])
}

#[inline]
#[target_feature(enable = "avx2")]
fn bit_pairs<const NUMBER: u32>(v: Bytes) -> Bytes {
    let (shift, mask) = (_mm256_set1_epi32(2 * NUMBER as i32), _mm256_set1_epi8(3));
    [
        _mm256_and_si256(_mm256_srlv_epi32(v[0], shift), mask),
        _mm256_and_si256(_mm256_srlv_epi32(v[1], shift), mask),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn join_bit_pair<const NUMBER: u32>(low: Bytes, pairs: Bytes) -> Bytes {
    let mask = _mm256_set1_epi8(0x30);
    [
        _mm256_or_si256(low[0], _mm256_and_si256(times_16::<NUMBER>(pairs[0]), mask)),
        _mm256_or_si256(low[1], _mm256_and_si256(times_16::<NUMBER>(pairs[1]), mask)),
    ]
}

/// Bit pair `NUMBER` of each byte, from bit 4 on.
#[inline]
#[target_feature(enable = "avx2")]
fn times_16<const NUMBER: u32>(pairs: __m256i) -> __m256i {
    match NUMBER {
        0 => _mm256_slli_epi32::<4>(pairs),
        1 => _mm256_slli_epi32::<2>(pairs),
        2 => pairs,
        _ => _mm256_srli_epi32::<2>(pairs),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn flip_signs(v: Bytes) -> Bytes {
    let sign = _mm256_set1_epi8(-128);
    [_mm256_xor_si256(v[0], sign), _mm256_xor_si256(v[1], sign)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn look_up(indices: Bytes, table: &[u8; 16]) -> Bytes {
    let table = _mm256_broadcastsi128_si256(load_16(table));
    [_mm256_shuffle_epi8(table, indices[0]), _mm256_shuffle_epi8(table, indices[1])]
}

/// Every byte looks at its bit of the mask.
#[inline]
#[target_feature(enable = "avx2")]
fn add_bit<const BIT: u8>(v: Bytes, mask: u64) -> Bytes {
    let bytes = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let mut out = v;
    for (half, out) in out.iter_mut().enumerate() {
        let spread = _mm256_shuffle_epi8(_mm256_set1_epi32((mask >> (32 * half)) as i32), bytes);
        let set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
        *out = _mm256_or_si256(*out, _mm256_and_si256(set, _mm256_set1_epi8(BIT as i8)));
    }
    out
}

#[inline]
#[target_feature(enable = "avx2")]
fn signed_byte<const NUMBER: u32>(v: Bytes) -> Ints {
    let shift = _mm256_set1_epi32(24 - 8 * NUMBER as i32);
    [
        _mm256_srai_epi32::<24>(_mm256_sllv_epi32(v[0], shift)),
        _mm256_srai_epi32::<24>(_mm256_sllv_epi32(v[1], shift)),
    ]
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_f16(from: &[u8; 32]) -> Floats {
    let halves = from.as_chunks().0;
    [_mm256_cvtph_ps(load_16(&halves[0])), _mm256_cvtph_ps(load_16(&halves[1]))]
}

#[inline]
#[target_feature(enable = "avx2")]
fn to_floats(v: Ints) -> Floats {
    [_mm256_cvtepi32_ps(v[0]), _mm256_cvtepi32_ps(v[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_exponents(from: &[u8; 16]) -> Floats {
    let mut out = load_unsigned(from);
    for out in &mut out {
        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(*out, _mm256_set1_epi32(1)));
        let denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), *out);
        *out = _mm256_blendv_epi8(normal, denormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), *out));
    }
    floats(out)
}

/// The bits as those of floats whose exponent has another bias; the factor makes up for it.
#[inline]
#[target_feature(enable = "avx2")]
fn load_small_floats(from: &[u8; 16]) -> Floats {
    let mut out = load_unsigned(from);
    for out in &mut out {
        let unknown = _mm256_cmpeq_epi32(*out, _mm256_set1_epi32(0x7f));
        let bits = _mm256_slli_epi32::<20>(_mm256_and_si256(*out, _mm256_set1_epi32(0x7f)));
        *out = _mm256_andnot_si256(unknown, bits);
    }
    let factor = _mm256_castsi256_ps(_mm256_set1_epi32((127 + 119) << 23));
    floats(out).map(|value| _mm256_mul_ps(value, factor))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_unsigned(from: &[u8; 16]) -> Ints {
    let bytes = load_16(from);
    [_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes))]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_signed(from: &[u8; 16]) -> Ints {
    let bytes = load_16(from);
    [_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes))]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_nibbles<const SHIFT: u32>(from: &[u8; 16]) -> Ints {
    let (mut out, shift) = (load_unsigned(from), _mm256_set1_epi32(SHIFT as i32));
    for out in &mut out {
        *out = _mm256_and_si256(_mm256_srlv_epi32(*out, shift), _mm256_set1_epi32(15));
    }
    out
}

#[inline]
#[target_feature(enable = "avx2")]
fn mul(a: Floats, b: Floats) -> Floats {
    [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn negative(a: Floats) -> Floats {
    let sign = _mm256_set1_ps(-0.0);
    [_mm256_xor_ps(a[0], sign), _mm256_xor_ps(a[1], sign)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn zero() -> Floats {
    [_mm256_setzero_ps(); 2]
}
