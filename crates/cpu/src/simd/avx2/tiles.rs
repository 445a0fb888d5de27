//! Repacked tiles: multiplied as they are with few rows of activations, or taken apart for many.

use std::arch::x86_64::*;

use orlop_graph::DType;

use super::{load_16, load_bytes, store_16};
use crate::simd::eight_bit::{Block, Tail, word_at};
use crate::simd::steps::{LEVELS, MX_LEVELS, mask, of_type, part, tile_functions, tile_types, within};

type V = [__m256i; 2];
type F = [__m256; 2];
type I = [__m256i; 2];

macro_rules! kernels {
    ($(#[$attr:meta])*) => {
        $(#[$attr])*
        pub(super) fn dot<const T: usize, const N: usize>(
            tiles: &[u8],
            acts: [&[Block]; T],
            out: &mut [[f32; N]],
        ) {
            let group = acts[0].len() / BLOCKS * TILE;
            for (number, tiles) in tiles.chunks_exact(group.max(1)).enumerate() {
                let sums = dot_group(tiles, acts);
                for (out, sum) in out.iter_mut().zip(sums) {
                    store_16(&mut out.as_chunks_mut().0[number], sum);
                }
            }
        }

        const BLOCKS: usize = ELEMENTS / 32;

        $(#[$attr])*
        fn dot_group<const T: usize>(tiles: &[u8], acts: [&[Block]; T]) -> [F; T] {
            const GROUPS: usize = 32 / GROUP;
            let mut sums = [[_mm256_setzero_ps(); 2]; T];
            let tiles = tiles.as_chunks::<TILE>().0;
            let acts = acts.map(|act| &act.as_chunks::<BLOCKS>().0[..tiles.len()]);
            for (number, tile) in tiles.iter().enumerate() {
                for part in 0..PARTS {
                    let mut products = [[[_mm256_setzero_si256(); 2]; T]; SLOTS];
                    if OFFSET != 0 && !WIDE {
                        for (slot, products) in products.iter_mut().enumerate() {
                            let group = group_of(part, slot);
                            for (product, act) in products.iter_mut().zip(&acts) {
                                let tail = Tail::signed(&act[number][group / GROUPS]);
                                let sum = tail.sum(within(group, GROUPS), GROUPS);
                                *product = [_mm256_set1_epi32(-OFFSET * sum); 2];
                            }
                        }
                    }
                    steps(tile, part, |slot, k, codes| {
                        for (product, act) in products[slot].iter_mut().zip(&acts) {
                            let four = _mm256_set1_epi32(word_at(&act[number][k / 32], k % 32));
                            for half in 0..2 {
                                let fours = if WIDE {
                                    fours_signed(moved(codes[half], OFFSET), four)
                                } else {
                                    fours(codes[half], four)
                                };
                                product[half] = _mm256_add_epi32(product[half], fours);
                            }
                        }
                    });
                    for (slot, products) in products.iter().enumerate() {
                        let group = group_of(part, slot);
                        let (scale, min) = (group_scale(tile, group), group_min(tile, group));
                        for ((sum, product), act) in sums.iter_mut().zip(products).zip(&acts) {
                            let tail = Tail::signed(&act[number][group / GROUPS]);
                            let all = tail.scale * tail.sum(within(group, GROUPS), GROUPS) as f32;
                            for half in 0..2 {
                                let scale = _mm256_mul_ps(scale[half], _mm256_set1_ps(tail.scale));
                                sum[half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product[half]), scale, sum[half]);
                                if MIN {
                                    sum[half] = _mm256_fmadd_ps(min[half], _mm256_set1_ps(all), sum[half]);
                                }
                            }
                        }
                    }
                }
            }
            sums
        }

        $(#[$attr])*
        pub(super) fn expand(tiles: &[u8], panel: &mut [f32]) {
            const GROUPS: usize = 32 / GROUP;
            const BLOCK: usize = 128 + 48 * GROUPS;
            let panels = panel.as_chunks_mut::<{ BLOCK * (ELEMENTS / 32) }>().0;
            for (tile, panel) in tiles.as_chunks::<TILE>().0.iter().zip(panels) {
                let panel = panel.as_chunks_mut::<16>().0;
                for part in 0..PARTS {
                    let mut sums = [[_mm256_setzero_si256(); 2]; SLOTS];
                    steps(tile, part, |slot, k, codes| {
                        let weights = [moved(codes[0], OFFSET), moved(codes[1], OFFSET)];
                        for half in 0..2 {
                            let fours = fours(_mm256_set1_epi8(1), weights[half]);
                            sums[slot][half] = _mm256_add_epi32(sums[slot][half], fours);
                        }
                        store_16(&mut panel[k / 32 * (BLOCK / 16) + k % 32 / 4], floats(weights));
                    });
                    for (slot, sum) in sums.iter().enumerate() {
                        let group = group_of(part, slot);
                        let at = group / GROUPS * (BLOCK / 16) + 8 + within(group, GROUPS) * 3;
                        let mut start = [_mm256_setzero_si256(); 2];
                        for half in 0..2 {
                            start[half] = _mm256_sub_epi32(start[half], _mm256_slli_epi32(sum[half], 7));
                        }
                        store_16(&mut panel[at], floats(start));
                        store_16(&mut panel[at + 1], group_scale(tile, group));
                        store_16(&mut panel[at + 2], group_min(tile, group));
                    }
                }
            }
        }
    };
}

tile_types! { #[inline] #[target_feature(enable = "avx2,fma,f16c")] }
tile_functions! { #[target_feature(enable = "avx2,fma,f16c")] }

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
fn moved(codes: __m256i, by: i32) -> __m256i {
    _mm256_sub_epi8(codes, _mm256_set1_epi8(by as i8))
}

#[inline]
#[target_feature(enable = "avx2")]
fn floats(v: V) -> F {
    [_mm256_castsi256_ps(v[0]), _mm256_castsi256_ps(v[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(tile: &[u8], at: usize) -> V {
    [load_bytes(part(tile, at)), load_bytes(part(tile, at + 32))]
}

#[inline]
#[target_feature(enable = "avx2")]
fn low(v: V) -> V {
    let mask = _mm256_set1_epi8(15);
    [_mm256_and_si256(v[0], mask), _mm256_and_si256(v[1], mask)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn high(v: V) -> V {
    low([_mm256_srli_epi32::<4>(v[0]), _mm256_srli_epi32::<4>(v[1])])
}

#[inline]
#[target_feature(enable = "avx2")]
fn pair<const NUMBER: u32>(v: V) -> V {
    let (shift, mask) = (_mm256_set1_epi32(2 * NUMBER as i32), _mm256_set1_epi8(3));
    [
        _mm256_and_si256(_mm256_srlv_epi32(v[0], shift), mask),
        _mm256_and_si256(_mm256_srlv_epi32(v[1], shift), mask),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn joined(low: V, high: V) -> V {
    [
        _mm256_or_si256(low[0], _mm256_slli_epi32::<4>(high[0])),
        _mm256_or_si256(low[1], _mm256_slli_epi32::<4>(high[1])),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn flip(v: V) -> V {
    let sign = _mm256_set1_epi8(-128);
    [_mm256_xor_si256(v[0], sign), _mm256_xor_si256(v[1], sign)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn level(v: V, levels: &[u8; 16]) -> V {
    let levels = _mm256_broadcastsi128_si256(load_16(levels));
    [_mm256_shuffle_epi8(levels, v[0]), _mm256_shuffle_epi8(levels, v[1])]
}

/// Every byte looks at its bit of the mask.
#[inline]
#[target_feature(enable = "avx2")]
fn with_bit<const BIT: u8>(v: V, mask: u64) -> V {
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
#[target_feature(enable = "avx2,f16c")]
fn halves(tile: &[u8], at: usize) -> F {
    [_mm256_cvtph_ps(load_16(part(tile, at))), _mm256_cvtph_ps(load_16(part(tile, at + 16)))]
}

#[inline]
#[target_feature(enable = "avx2")]
fn converted(v: I) -> F {
    [_mm256_cvtepi32_ps(v[0]), _mm256_cvtepi32_ps(v[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn exponents(tile: &[u8], at: usize) -> F {
    let mut out = unsigned(tile, at);
    for out in &mut out {
        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(*out, _mm256_set1_epi32(1)));
        let denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), *out);
        *out = _mm256_blendv_epi8(normal, denormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), *out));
    }
    floats(out)
}

#[inline]
#[target_feature(enable = "avx2")]
fn unsigned(tile: &[u8], at: usize) -> I {
    let bytes = load_16(part(tile, at));
    [_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes))]
}

#[inline]
#[target_feature(enable = "avx2")]
fn signed(tile: &[u8], at: usize) -> I {
    let bytes = load_16(part(tile, at));
    [_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes))]
}

#[inline]
#[target_feature(enable = "avx2")]
fn nibbles<const SHIFT: u32>(tile: &[u8], at: usize) -> I {
    let (mut out, shift) = (unsigned(tile, at), _mm256_set1_epi32(SHIFT as i32));
    for out in &mut out {
        *out = _mm256_and_si256(_mm256_srlv_epi32(*out, shift), _mm256_set1_epi32(15));
    }
    out
}

#[inline]
#[target_feature(enable = "avx2")]
fn one() -> I {
    [_mm256_set1_epi32(1); 2]
}

#[inline]
#[target_feature(enable = "avx2")]
fn product(a: F, b: F) -> F {
    [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn negative(a: F) -> F {
    let sign = _mm256_set1_ps(-0.0);
    [_mm256_xor_ps(a[0], sign), _mm256_xor_ps(a[1], sign)]
}

#[inline]
#[target_feature(enable = "avx2")]
fn zero() -> F {
    [_mm256_setzero_ps(); 2]
}
