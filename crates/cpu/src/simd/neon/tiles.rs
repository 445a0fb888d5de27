//! Repacked tiles: multiplied as they are with few rows of activations, or taken apart for many.

use std::arch::aarch64::*;

use orlop_graph::DType;

use super::{F, add_dots, load_bytes, store_16};
use crate::simd::eight_bit::{Block, Tail, word_at};
use crate::simd::steps::{LEVELS, MX_LEVELS, mask, of_type, part, tile_functions, tile_types, within};

type V = [uint8x16_t; 4];
type I = [int32x4_t; 4];

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
            let mut sums = [[vdupq_n_f32(0.0); 4]; T];
            let tiles = tiles.as_chunks::<TILE>().0;
            let acts = acts.map(|act| &act.as_chunks::<BLOCKS>().0[..tiles.len()]);
            for (number, tile) in tiles.iter().enumerate() {
                for part in 0..PARTS {
                    let mut products = [[[vdupq_n_s32(0); 4]; T]; SLOTS];
                    steps(tile, part, |slot, k, codes| {
                        let weights = moved(codes, OFFSET);
                        for (product, act) in products[slot].iter_mut().zip(&acts) {
                            let four = vdupq_n_s32(word_at(&act[number][k / 32], k % 32));
                            for (product, weights) in product.iter_mut().zip(weights) {
                                *product = add_dots(*product, weights, vreinterpretq_s8_s32(four));
                            }
                        }
                    });
                    for (slot, products) in products.iter().enumerate() {
                        let group = group_of(part, slot);
                        let (scale, min) = (group_scale(tile, group), group_min(tile, group));
                        for ((sum, product), act) in sums.iter_mut().zip(products).zip(&acts) {
                            let tail = Tail::signed(&act[number][group / GROUPS]);
                            let all = tail.scale * tail.sum(within(group, GROUPS), GROUPS) as f32;
                            for quarter in 0..4 {
                                let scale = vmulq_n_f32(scale[quarter], tail.scale);
                                sum[quarter] =
                                    vfmaq_f32(sum[quarter], vcvtq_f32_s32(product[quarter]), scale);
                                if MIN {
                                    sum[quarter] = vfmaq_n_f32(sum[quarter], min[quarter], all);
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
                    let mut sums = [[vdupq_n_s32(0); 4]; SLOTS];
                    steps(tile, part, |slot, k, codes| {
                        let weights = moved(codes, OFFSET);
                        for (sum, weights) in sums[slot].iter_mut().zip(weights) {
                            *sum = add_dots(*sum, weights, vdupq_n_s8(1));
                        }
                        let bits = [0, 1, 2, 3].map(|quarter| vreinterpretq_f32_s8(weights[quarter]));
                        store_16(&mut panel[k / 32 * (BLOCK / 16) + k % 32 / 4], bits);
                    });
                    for (slot, sum) in sums.iter().enumerate() {
                        let group = group_of(part, slot);
                        let at = group / GROUPS * (BLOCK / 16) + 8 + within(group, GROUPS) * 3;
                        let start = [0, 1, 2, 3].map(|quarter| {
                            vreinterpretq_f32_s32(vnegq_s32(vshlq_n_s32::<7>(sum[quarter])))
                        });
                        store_16(&mut panel[at], start);
                        store_16(&mut panel[at + 1], group_scale(tile, group));
                        store_16(&mut panel[at + 2], group_min(tile, group));
                    }
                }
            }
        }
    };
}

tile_types! { #[inline] #[target_feature(enable = "neon,dotprod")] }
tile_functions! { #[target_feature(enable = "neon,dotprod")] }

/// The weights that codes stand for.
#[inline]
#[target_feature(enable = "neon")]
fn moved(codes: V, by: i32) -> [int8x16_t; 4] {
    let by = vdupq_n_u8(by as u8);
    [0, 1, 2, 3].map(|quarter| vreinterpretq_s8_u8(vsubq_u8(codes[quarter], by)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(tile: &[u8], at: usize) -> V {
    [0, 16, 32, 48].map(|more| load_bytes(part(tile, at + more)))
}

#[inline]
#[target_feature(enable = "neon")]
fn low(v: V) -> V {
    [0, 1, 2, 3].map(|quarter| vandq_u8(v[quarter], vdupq_n_u8(15)))
}

#[inline]
#[target_feature(enable = "neon")]
fn high(v: V) -> V {
    [0, 1, 2, 3].map(|quarter| vshrq_n_u8::<4>(v[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn pair<const NUMBER: u32>(v: V) -> V {
    let shift = vdupq_n_s8(-2 * NUMBER as i8);
    [0, 1, 2, 3].map(|quarter| vandq_u8(vshlq_u8(v[quarter], shift), vdupq_n_u8(3)))
}

#[inline]
#[target_feature(enable = "neon")]
fn joined(low: V, high: V) -> V {
    [0, 1, 2, 3].map(|quarter| vorrq_u8(low[quarter], vshlq_n_u8::<4>(high[quarter])))
}

#[inline]
#[target_feature(enable = "neon")]
fn flip(v: V) -> V {
    [0, 1, 2, 3].map(|quarter| veorq_u8(v[quarter], vdupq_n_u8(128)))
}

#[inline]
#[target_feature(enable = "neon")]
fn level(v: V, levels: &[u8; 16]) -> V {
    let levels = load_bytes(levels);
    [0, 1, 2, 3].map(|quarter| vqtbl1q_u8(levels, v[quarter]))
}

/// Every byte looks at its bit of the mask.
#[inline]
#[target_feature(enable = "neon")]
fn with_bit<const BIT: u8>(v: V, mask: u64) -> V {
    let bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    [0, 1, 2, 3].map(|quarter| {
        let [a, b] = ((mask >> (16 * quarter)) as u16).to_le_bytes();
        let set = vtstq_u8(vcombine_u8(vdup_n_u8(a), vdup_n_u8(b)), bits);
        vorrq_u8(v[quarter], vandq_u8(set, vdupq_n_u8(BIT)))
    })
}

#[inline]
#[target_feature(enable = "neon")]
fn halves(tile: &[u8], at: usize) -> F {
    [0, 8, 16, 24].map(|more| super::halves(part(tile, at + more)))
}

#[inline]
#[target_feature(enable = "neon")]
fn converted(v: I) -> F {
    [0, 1, 2, 3].map(|quarter| vcvtq_f32_s32(v[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn exponents(tile: &[u8], at: usize) -> F {
    unsigned(tile, at).map(|exponent| {
        let normal = vshlq_n_s32::<23>(vsubq_s32(exponent, vdupq_n_s32(1)));
        let denormal = vshlq_s32(vdupq_n_s32(0x0020_0000), exponent);
        vreinterpretq_f32_s32(vbslq_s32(vcgtq_s32(vdupq_n_s32(2), exponent), denormal, normal))
    })
}

#[inline]
#[target_feature(enable = "neon")]
fn unsigned(tile: &[u8], at: usize) -> I {
    let bytes = load_bytes(part(tile, at));
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes)));
    [vget_low_u16(low), vget_high_u16(low), vget_low_u16(high), vget_high_u16(high)]
        .map(|words| vreinterpretq_s32_u32(vmovl_u16(words)))
}

#[inline]
#[target_feature(enable = "neon")]
fn signed(tile: &[u8], at: usize) -> I {
    let bytes = vreinterpretq_s8_u8(load_bytes(part(tile, at)));
    let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
    [vget_low_s16(low), vget_high_s16(low), vget_low_s16(high), vget_high_s16(high)]
        .map(|words| vmovl_s16(words))
}

#[inline]
#[target_feature(enable = "neon")]
fn nibbles<const SHIFT: u32>(tile: &[u8], at: usize) -> I {
    let shift = vdupq_n_s32(-(SHIFT as i32));
    unsigned(tile, at).map(|byte| vandq_s32(vshlq_s32(byte, shift), vdupq_n_s32(15)))
}

#[inline]
#[target_feature(enable = "neon")]
fn one() -> I {
    [vdupq_n_s32(1); 4]
}

#[inline]
#[target_feature(enable = "neon")]
fn product(a: F, b: F) -> F {
    [0, 1, 2, 3].map(|quarter| vmulq_f32(a[quarter], b[quarter]))
}

#[inline]
#[target_feature(enable = "neon")]
fn negative(a: F) -> F {
    a.map(|a| vnegq_f32(a))
}

#[inline]
#[target_feature(enable = "neon")]
fn zero() -> F {
    [vdupq_n_f32(0.0); 4]
}
