//! Vectors of NEON for tiles: four quarters each.

use std::arch::aarch64::*;

use super::{F as Floats, add_dots, load_bytes, store_16};
use crate::simd::tile_vector::{PartWork, TileVector, TileWork, forward_to_functions};

type Bytes = [uint8x16_t; 4];
type Ints = [int32x4_t; 4];

/// Proof of NEON and dot products.
#[derive(Clone, Copy)]
struct Neon(());

impl Neon {
    /// # Safety
    /// The processor has the instructions.
    #[inline(always)]
    unsafe fn new() -> Neon {
        Neon(())
    }
}

impl TileVector for Neon {
    /// `sdot` multiplies signed bytes.
    const LARGEST_CODE: i32 = 0;

    forward_to_functions! {}
}

/// Runs a loop over tiles.
#[target_feature(enable = "neon,dotprod")]
pub(in crate::simd) fn run(work: impl TileWork) {
    // SAFETY: `new` asks for the instructions of this function.
    work.run(unsafe { Neon::new() });
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn call(part: impl PartWork<Neon>) {
    // SAFETY: as above.
    part.run(unsafe { Neon::new() });
}

#[inline]
#[target_feature(enable = "neon")]
fn minus(codes: Bytes, bias: i32) -> Bytes {
    let bias = vdupq_n_u8(bias as u8);
    [0, 1, 2, 3].map(|quarter| vsubq_u8(codes[quarter], bias))
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_products(sums: Ints, codes: Bytes, bias: i32, four: i32) -> Ints {
    let (four, weights) = (vreinterpretq_s8_s32(vdupq_n_s32(four)), minus(codes, bias));
    [0, 1, 2, 3].map(|quarter| add_dots(sums[quarter], vreinterpretq_s8_u8(weights[quarter]), four))
}

#[inline]
#[target_feature(enable = "neon")]
fn splat_int(value: i32) -> Ints {
    [vdupq_n_s32(value); 4]
}

#[inline]
#[target_feature(enable = "neon")]
fn join_passes(upper: Ints, lower: Ints) -> Ints {
    [0, 1, 2, 3].map(|quarter| vaddq_s32(vshlq_n_s32::<8>(upper[quarter]), lower[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn splat(value: f32) -> Floats {
    [vdupq_n_f32(value); 4]
}

#[inline]
#[target_feature(enable = "neon")]
fn mul_add(a: Floats, b: Floats, c: Floats) -> Floats {
    [0, 1, 2, 3].map(|quarter| vfmaq_f32(c[quarter], a[quarter], b[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn store(to: &mut [f32; 16], value: Floats) {
    store_16(to, value);
}

#[inline]
#[target_feature(enable = "neon")]
fn store_bytes(to: &mut [f32; 16], value: Bytes) {
    store_16(to, value.map(|value| vreinterpretq_f32_u8(value)));
}

#[inline]
#[target_feature(enable = "neon")]
fn load(from: &[u8; 64]) -> Bytes {
    let quarters = from.as_chunks::<16>().0;
    [0, 1, 2, 3].map(|quarter| load_bytes(&quarters[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn low_nibbles(v: Bytes) -> Bytes {
    [0, 1, 2, 3].map(|quarter| vandq_u8(v[quarter], vdupq_n_u8(15)))
}

#[inline]
#[target_feature(enable = "neon")]
fn high_nibbles(v: Bytes) -> Bytes {
    [0, 1, 2, 3].map(|quarter| vshrq_n_u8::<4>(v[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn bit_pairs<const NUMBER: u32>(v: Bytes) -> Bytes {
    let shift = vdupq_n_s8(-2 * NUMBER as i8);
    [0, 1, 2, 3].map(|quarter| vandq_u8(vshlq_u8(v[quarter], shift), vdupq_n_u8(3)))
}

#[inline]
#[target_feature(enable = "neon")]
fn join_bit_pair<const NUMBER: u32>(low: Bytes, pairs: Bytes) -> Bytes {
    let (shift, mask) = (vdupq_n_s8(4 - 2 * NUMBER as i8), vdupq_n_u8(0x30));
    [0, 1, 2, 3].map(|quarter| vorrq_u8(low[quarter], vandq_u8(vshlq_u8(pairs[quarter], shift), mask)))
}

#[inline]
#[target_feature(enable = "neon")]
fn flip_signs(v: Bytes) -> Bytes {
    [0, 1, 2, 3].map(|quarter| veorq_u8(v[quarter], vdupq_n_u8(128)))
}

#[inline]
#[target_feature(enable = "neon")]
fn look_up(indices: Bytes, table: &[u8; 16]) -> Bytes {
    let table = load_bytes(table);
    [0, 1, 2, 3].map(|quarter| vqtbl1q_u8(table, indices[quarter]))
}

/// Every byte looks at its bit of the mask.
#[inline]
#[target_feature(enable = "neon")]
fn add_bit<const BIT: u8>(v: Bytes, mask: u64) -> Bytes {
    let bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    [0, 1, 2, 3].map(|quarter| {
        let [a, b] = ((mask >> (16 * quarter)) as u16).to_le_bytes();
        let set = vtstq_u8(vcombine_u8(vdup_n_u8(a), vdup_n_u8(b)), bits);
        vorrq_u8(v[quarter], vandq_u8(set, vdupq_n_u8(BIT)))
    })
}

#[inline]
#[target_feature(enable = "neon")]
fn signed_byte<const NUMBER: u32>(v: Bytes) -> Ints {
    let shift = vdupq_n_s32(24 - 8 * NUMBER as i32);
    v.map(|v| vshrq_n_s32::<24>(vshlq_s32(vreinterpretq_s32_u8(v), shift)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f16(from: &[u8; 32]) -> Floats {
    let quarters = from.as_chunks::<8>().0;
    [0, 1, 2, 3].map(|quarter| super::halves(&quarters[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn to_floats(v: Ints) -> Floats {
    [0, 1, 2, 3].map(|quarter| vcvtq_f32_s32(v[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_exponents(from: &[u8; 16]) -> Floats {
    load_unsigned(from).map(|exponent| {
        let normal = vshlq_n_s32::<23>(vsubq_s32(exponent, vdupq_n_s32(1)));
        let denormal = vshlq_s32(vdupq_n_s32(0x0020_0000), exponent);
        vreinterpretq_f32_s32(vbslq_s32(vcgtq_s32(vdupq_n_s32(2), exponent), denormal, normal))
    })
}

/// The bits as those of floats whose exponent has another bias; the factor makes up for it.
#[inline]
#[target_feature(enable = "neon")]
fn load_small_floats(from: &[u8; 16]) -> Floats {
    load_unsigned(from).map(|byte| {
        let known = vmvnq_u32(vceqq_s32(byte, vdupq_n_s32(0x7f)));
        let bits = vshlq_n_s32::<20>(vandq_s32(byte, vdupq_n_s32(0x7f)));
        let bits = vandq_u32(vreinterpretq_u32_s32(bits), known);
        vmulq_f32(vreinterpretq_f32_u32(bits), vreinterpretq_f32_s32(vdupq_n_s32((127 + 119) << 23)))
    })
}

#[inline]
#[target_feature(enable = "neon")]
fn load_unsigned(from: &[u8; 16]) -> Ints {
    let bytes = load_bytes(from);
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes)));
    [vget_low_u16(low), vget_high_u16(low), vget_low_u16(high), vget_high_u16(high)]
        .map(|words| vreinterpretq_s32_u32(vmovl_u16(words)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_signed(from: &[u8; 16]) -> Ints {
    let bytes = vreinterpretq_s8_u8(load_bytes(from));
    let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
    [vget_low_s16(low), vget_high_s16(low), vget_low_s16(high), vget_high_s16(high)]
        .map(|words| vmovl_s16(words))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_nibbles<const SHIFT: u32>(from: &[u8; 16]) -> Ints {
    let shift = vdupq_n_s32(-(SHIFT as i32));
    load_unsigned(from).map(|byte| vandq_s32(vshlq_s32(byte, shift), vdupq_n_s32(15)))
}

#[inline]
#[target_feature(enable = "neon")]
fn mul(a: Floats, b: Floats) -> Floats {
    [0, 1, 2, 3].map(|quarter| vmulq_f32(a[quarter], b[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn negative(a: Floats) -> Floats {
    a.map(|a| vnegq_f32(a))
}

#[inline]
#[target_feature(enable = "neon")]
fn zero() -> Floats {
    [vdupq_n_f32(0.0); 4]
}
