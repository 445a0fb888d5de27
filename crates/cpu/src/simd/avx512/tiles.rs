//! Repacked tiles: multiplied as they are with few rows of activations, or taken apart for many.

use std::arch::x86_64::*;

use orlop_graph::DType;

use super::{JOINT_VECTORS, four, load_16, load_32, load_bytes, store_f32};
use crate::simd::eight_bit::{Block, JOINT, Tail};
use crate::simd::prefetch::prefetch_next;
use crate::simd::steps::{LEVELS, MX_LEVELS, mask, of_type, part, tile_functions, tile_types, within};

type V = __m512i;
type F = __m512;
type I = __m512i;

macro_rules! kernels {
    ($(#[$attr:meta])*) => {
        $(#[$attr])*
        pub(super) fn dot<const T: usize, const N: usize>(
            tiles: &[u8],
            acts: [&[Block]; T],
            out: &mut [[f32; N]],
        ) {
            let each = acts[0].len() / BLOCKS;
            // Closures in loops may stay calls, so there are none.
            let acts = acts.map(|act| &act.as_chunks::<BLOCKS>().0[..each]);
            for (number, tiles) in tiles.as_chunks::<TILE>().0.chunks_exact(each.max(1)).enumerate() {
                let mut sums = [_mm512_setzero_ps(); T];
                for (place, tile) in tiles.iter().enumerate() {
                    let mut here = [&acts[0][place]; T];
                    for (here, act) in here.iter_mut().zip(&acts) {
                        *here = &act[place];
                    }
                    let (scale, min) = (scale(tile), min(tile));
                    let mut parts = [[_mm512_setzero_ps(); 2]; T];
                    dot_part::<T, 0>(tile, &here, &mut parts);
                    if PARTS >= 4 {
                        dot_part::<T, 1>(tile, &here, &mut parts);
                        dot_part::<T, 2>(tile, &here, &mut parts);
                        dot_part::<T, 3>(tile, &here, &mut parts);
                    }
                    if PARTS == 8 {
                        dot_part::<T, 4>(tile, &here, &mut parts);
                        dot_part::<T, 5>(tile, &here, &mut parts);
                        dot_part::<T, 6>(tile, &here, &mut parts);
                        dot_part::<T, 7>(tile, &here, &mut parts);
                    }
                    for (sum, [products, all]) in sums.iter_mut().zip(parts) {
                        *sum = _mm512_fmadd_ps(products, scale, *sum);
                        if MIN {
                            *sum = _mm512_fmadd_ps(all, min, *sum);
                        }
                    }
                }
                for (out, sum) in out.iter_mut().zip(sums) {
                    store_f32(&mut out.as_chunks_mut().0[number], sum);
                }
            }
        }

        const BLOCKS: usize = ELEMENTS / 32;

        /// Adds what one part of a tile gives: products, to be scaled, and sums of activations, for minima. Places in
        /// it are constants, so that nothing is left to compute.
        $(#[$attr])*
        fn dot_part<const T: usize, const PART: usize>(
            tile: &[u8; TILE],
            acts: &[&[Block; BLOCKS]; T],
            parts: &mut [[F; 2]; T],
        ) {
            const GROUPS: usize = 32 / GROUP;
            let mut products = [[_mm512_setzero_si512(); T]; SLOTS];
            if OFFSET != 0 {
                for (slot, products) in products.iter_mut().enumerate() {
                    let group = group_of(PART, slot);
                    for (product, act) in products.iter_mut().zip(acts) {
                        let sum = Tail::signed(&act[group / GROUPS]).sum(within(group, GROUPS), GROUPS);
                        *product = _mm512_set1_epi32(-OFFSET * sum);
                    }
                }
            }
            steps(tile, PART, |slot, k, codes| {
                for (product, act) in products[slot].iter_mut().zip(acts) {
                    *product = _mm512_dpbusd_epi32(*product, codes, four(&act[k / 32], k % 32));
                }
            });
            for (slot, products) in products.iter().enumerate() {
                let group = group_of(PART, slot);
                let (scale, min) = (scale_number(tile, group), converted(min_number(tile, group)));
                for ((part, product), act) in parts.iter_mut().zip(products).zip(acts) {
                    let tail = Tail::signed(&act[group / GROUPS]);
                    let product = if NUMBERS { _mm512_mullo_epi32(*product, scale) } else { *product };
                    part[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), _mm512_set1_ps(tail.scale), part[0]);
                    if MIN {
                        let all = tail.scale * tail.sum(within(group, GROUPS), GROUPS) as f32;
                        part[1] = _mm512_fmadd_ps(min, _mm512_set1_ps(all), part[1]);
                    }
                }
            }
        }

        $(#[$attr])*
        pub(super) fn expand(tiles: &[u8], panel: &mut [f32]) {
            const GROUPS: usize = 32 / GROUP;
            const BLOCK: usize = 128 + 48 * GROUPS;
            let panels = panel.as_chunks_mut::<{ BLOCK * (ELEMENTS / 32) }>().0;
            for (tile, panel) in tiles.as_chunks::<TILE>().0.iter().zip(panels) {
                let panel = panel.as_chunks_mut::<16>().0;
                for part in 0..PARTS {
                    let mut sums = [_mm512_setzero_si512(); SLOTS];
                    steps(tile, part, |slot, k, codes| {
                        let weights = _mm512_sub_epi8(codes, _mm512_set1_epi8(OFFSET as i8));
                        sums[slot] = _mm512_dpbusd_epi32(sums[slot], _mm512_set1_epi8(1), weights);
                        store_f32(
                            &mut panel[k / 32 * (BLOCK / 16) + k % 32 / 4],
                            _mm512_castsi512_ps(weights),
                        );
                    });
                    for (slot, sum) in sums.iter().enumerate() {
                        let group = group_of(part, slot);
                        let at = group / GROUPS * (BLOCK / 16) + 8 + within(group, GROUPS) * 3;
                        let start = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(*sum, 7));
                        store_f32(&mut panel[at], _mm512_castsi512_ps(start));
                        store_f32(&mut panel[at + 1], group_scale(tile, group));
                        store_f32(&mut panel[at + 2], group_min(tile, group));
                    }
                }
            }
        }

        /// Takes tiles without minima apart into a joint panel: weights are rounded to multiples of one scale.
        #[allow(dead_code)] // not everywhere
        $(#[$attr])*
        pub(super) fn expand_jointly(tiles: &[u8], panel: &mut [f32]) {
            const PIECES: usize = ELEMENTS / JOINT;
            let panels = panel.as_chunks_mut::<16>().0.as_chunks_mut::<JOINT_VECTORS>().0;
            let panels = panels.chunks_exact_mut(PIECES);
            for (tile, panels) in tiles.as_chunks::<TILE>().0.iter().zip(panels) {
                let mut factors = [[_mm512_setzero_si512(); 2]; ELEMENTS / GROUP];
                for (piece, panel) in panels.iter_mut().enumerate() {
                    let groups = piece * (JOINT / GROUP)..(piece + 1) * (JOINT / GROUP);
                    let mut largest = one();
                    for group in groups.clone() {
                        largest = _mm512_max_epi32(largest, _mm512_abs_epi32(scale_number(tile, group)));
                    }
                    let times = _mm512_div_ps(_mm512_set1_ps(127.0 / OFFSET as f32), converted(largest));
                    for group in groups {
                        factors[group] = factor(product(converted(scale_number(tile, group)), times), OFFSET);
                    }
                    store_f32(&mut panel[JOINT_VECTORS - 1], _mm512_div_ps(scale(tile), times));
                }
                let mut sums = [[_mm512_setzero_si512(); SLOTS]; PIECES];
                for part in 0..PARTS {
                    let next_but_one = tile.as_ptr().wrapping_add((part + 2) * (TILE / PARTS));
                    prefetch_next(next_but_one, TILE / PARTS);
                    let piece = group_of(part, 0) * GROUP / JOINT;
                    steps(tile, part, |slot, k, codes| {
                        let weights = scaled(codes, factors[group_of(part, slot)]);
                        let sum = &mut sums[piece][slot];
                        *sum = _mm512_dpbusd_epi32(*sum, _mm512_set1_epi8(1), weights);
                        store_f32(&mut panels[piece][1 + k % JOINT / 4], _mm512_castsi512_ps(weights));
                    });
                }
                for (panel, sums) in panels.iter_mut().zip(sums) {
                    let sum = sums.into_iter().fold(_mm512_setzero_si512(), |a, b| _mm512_add_epi32(a, b));
                    let start = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 7));
                    store_f32(&mut panel[0], _mm512_castsi512_ps(start));
                }
            }
        }
    };
}

/// What codes are multiplied with, and what is then added, so that the upper byte of 16 bits is a rounded weight; for both
/// halves of a row's lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn factor(scale: F, offset: i32) -> [V; 2] {
    let scale = _mm512_cvtps_epi32(_mm512_mul_ps(scale, _mm512_set1_ps(256.0)));
    let scale = _mm512_mask_blend_epi16(0xaaaa_aaaa, scale, _mm512_slli_epi32(scale, 16));
    let offset = _mm512_mullo_epi16(scale, _mm512_set1_epi16(offset as i16));
    [scale, _mm512_sub_epi16(_mm512_set1_epi16(128), offset)]
}

/// Codes as weights.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn scaled(codes: V, [scale, start]: [V; 2]) -> V {
    let even = _mm512_and_si512(codes, _mm512_set1_epi16(255));
    let odd = _mm512_srli_epi16(codes, 8);
    let even = _mm512_add_epi16(_mm512_mullo_epi16(even, scale), start);
    let odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, scale), start);
    _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, _mm512_srli_epi16(even, 8), odd)
}

tile_types! { #[inline] #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")] }
tile_functions! { #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")] }

/// Takes tiles apart into a joint panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(in crate::simd) fn expand_jointly(dtype: DType, tiles: &[u8], panel: &mut [f32]) {
    match dtype {
        DType::Q6_K => q6_k::expand_jointly(tiles, panel),
        _ => unreachable!("{dtype} has no joint panels"),
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(tile: &[u8], at: usize) -> V {
    load_bytes(part(tile, at))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn low(v: V) -> V {
    _mm512_and_si512(v, _mm512_set1_epi8(15))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn high(v: V) -> V {
    _mm512_and_si512(_mm512_srli_epi32(v, 4), _mm512_set1_epi8(15))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn pair<const NUMBER: u32>(v: V) -> V {
    _mm512_and_si512(_mm512_srlv_epi32(v, _mm512_set1_epi32(2 * NUMBER as i32)), _mm512_set1_epi8(3))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn joined(low: V, high: V) -> V {
    _mm512_or_si512(low, _mm512_slli_epi32(high, 4))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn flip(v: V) -> V {
    _mm512_xor_si512(v, _mm512_set1_epi8(-128))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn level(v: V, levels: &[u8; 16]) -> V {
    _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16(levels)), v)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn with_bit<const BIT: u8>(v: V, mask: u64) -> V {
    _mm512_mask_add_epi8(v, mask, v, _mm512_set1_epi8(BIT as i8))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn halves(tile: &[u8], at: usize) -> F {
    _mm512_cvtph_ps(load_32(part(tile, at)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn exponents(tile: &[u8], at: usize) -> F {
    let bytes = _mm512_cvtepu8_epi32(load_16(part(tile, at)));
    let normal = _mm512_slli_epi32(_mm512_sub_epi32(bytes, _mm512_set1_epi32(1)), 23);
    let denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), bytes);
    let small = _mm512_cmplt_epu32_mask(bytes, _mm512_set1_epi32(2));
    _mm512_castsi512_ps(_mm512_mask_blend_epi32(small, normal, denormal))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn unsigned(tile: &[u8], at: usize) -> I {
    _mm512_cvtepu8_epi32(load_16(part(tile, at)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn signed(tile: &[u8], at: usize) -> I {
    _mm512_cvtepi8_epi32(load_16(part(tile, at)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn nibbles<const SHIFT: u32>(tile: &[u8], at: usize) -> I {
    let shifted = _mm512_srlv_epi32(unsigned(tile, at), _mm512_set1_epi32(SHIFT as i32));
    _mm512_and_si512(shifted, _mm512_set1_epi32(15))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn one() -> I {
    _mm512_set1_epi32(1)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn converted(v: I) -> F {
    _mm512_cvtepi32_ps(v)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn product(a: F, b: F) -> F {
    _mm512_mul_ps(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn negative(a: F) -> F {
    _mm512_xor_ps(a, _mm512_set1_ps(-0.0))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn zero() -> F {
    _mm512_setzero_ps()
}
