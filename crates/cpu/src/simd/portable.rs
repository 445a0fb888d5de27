//! Products with repacked weights in plain Rust: the twin of every vector kernel, and, compiled for wider vectors,
//! what takes tiles apart where there is no code of its own.

use half::f16;
use orlop_graph::DType;

use super::eight_bit::{Block, Tail};
use super::steps::{LEVELS, MX_LEVELS, mask, of_type, tile_types, within};

type V = [u8; 64];
type F = [f32; 16];
type I = [i32; 16];

macro_rules! kernels {
    ($(#[$attr:meta])*) => {
        /// Takes tiles apart into a panel; see [`super::super::panel`].
        #[inline(always)]
        pub(super) fn expand(tiles: &[u8], panel: &mut [f32]) {
            const GROUPS: usize = 32 / GROUP;
            const BLOCK: usize = 128 + 48 * GROUPS;
            let panels = panel.chunks_exact_mut(BLOCK * (ELEMENTS / 32));
            for (tile, panel) in tiles.as_chunks::<TILE>().0.iter().zip(panels) {
                for part in 0..PARTS {
                    let mut sums = [[0i32; 16]; SLOTS];
                    steps(tile, part, |slot, k, codes| {
                        let weights: [i8; 64] = codes.map(|code| (i32::from(code) - OFFSET) as i8);
                        let to = &mut panel[k / 32 * BLOCK + k % 32 * 4..][..16];
                        for (row, four) in weights.as_chunks::<4>().0.iter().enumerate() {
                            to[row] = f32::from_le_bytes(four.map(|weight| weight as u8));
                            sums[slot][row] += four.iter().map(|weight| i32::from(*weight)).sum::<i32>();
                        }
                    });
                    for (slot, sums) in sums.iter().enumerate() {
                        let group = group_of(part, slot);
                        let to =
                            &mut panel[group / GROUPS * BLOCK + 128 + within(group, GROUPS) * 48..][..48];
                        for (to, sum) in to.iter_mut().zip(sums) {
                            *to = f32::from_bits((-128 * sum) as u32);
                        }
                        to[16..32].copy_from_slice(&group_scale(tile, group));
                        to[32..].copy_from_slice(&group_min(tile, group));
                    }
                }
            }
        }

        pub(super) fn kind() -> Kind {
            Kind { min: MIN, group: GROUP, offset: OFFSET, wide: WIDE, four_bits: false }
        }
    };
}

tile_types! { #[inline(always)] }

/// Takes tiles apart into a panel.
#[inline(always)]
pub(super) fn expand(dtype: DType, tiles: &[u8], panel: &mut [f32]) {
    of_type!(dtype, expand(tiles, panel), ())
}

/// What panels of a type are like.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // some tell AVX2 what sums fit 16 bits
pub(crate) struct Kind {
    /// Whether groups have minima.
    pub(crate) min: bool,
    /// How many elements they have.
    pub(crate) group: usize,
    /// What codes are larger by than weights.
    pub(crate) offset: i32,
    /// Whether codes need all of 8 bits; the others are below 64.
    pub(crate) wide: bool,
    /// Whether codes are below 16.
    pub(crate) four_bits: bool,
}

/// What panels of a type are like; `None` for types that are not repacked.
pub(crate) fn kind(dtype: DType) -> Option<Kind> {
    let four_bits = matches!(dtype, DType::Q4_0 | DType::Q4_1 | DType::Q4_K);
    Some(Kind { four_bits, ..of_type!(dtype, kind(), return None) })
}

/// The products of a panel with one row of activations whose numbers are signed.
pub(super) fn panel(Kind { min, group, .. }: Kind, panel: &[f32], act: &[Block]) -> [f32; 16] {
    let (groups, mut sums) = (32 / group, [0.0; 16]);
    for (panel, act) in panel.chunks_exact(128 + 48 * groups).zip(act) {
        let tail = Tail::signed(act);
        for number in 0..groups {
            let mut products = [0i32; 16];
            for k in (number * group..(number + 1) * group).step_by(4) {
                for (product, weights) in products.iter_mut().zip(&panel[k * 4..]) {
                    for (weight, act) in weights.to_le_bytes().iter().zip(&act[k..]) {
                        *product += i32::from(*weight as i8) * i32::from(*act as i8);
                    }
                }
            }
            let (scales, mins) = panel[128 + 48 * number + 16..][..32].split_at(16);
            let scaled_sum = tail.scale * tail.sum(number, groups) as f32;
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum += products[row] as f32 * (scales[row] * tail.scale);
                if min {
                    *sum += mins[row] * scaled_sum;
                }
            }
        }
    }
    sums
}

#[inline(always)]
fn load(tile: &[u8], at: usize) -> V {
    let mut v = [0; 64];
    v.copy_from_slice(&tile[at..at + 64]);
    v
}

#[inline(always)]
fn low(v: V) -> V {
    v.map(|byte| byte & 15)
}

#[inline(always)]
fn high(v: V) -> V {
    v.map(|byte| byte >> 4)
}

#[inline(always)]
fn pair<const NUMBER: u32>(v: V) -> V {
    v.map(|byte| (byte >> (2 * NUMBER)) & 3)
}

#[inline(always)]
fn joined(low: V, high: V) -> V {
    std::array::from_fn(|i| low[i] | (high[i] << 4))
}

#[inline(always)]
fn flip(v: V) -> V {
    v.map(|byte| byte ^ 128)
}

#[inline(always)]
fn level(v: V, levels: &[u8; 16]) -> V {
    v.map(|code| levels[usize::from(code & 15)])
}

#[inline(always)]
fn with_bit<const BIT: u8>(v: V, mask: u64) -> V {
    std::array::from_fn(|i| v[i] | (((mask >> i) & 1) as u8 * BIT))
}

#[inline(always)]
fn halves(tile: &[u8], at: usize) -> F {
    std::array::from_fn(|row| f16::from_le_bytes([tile[at + 2 * row], tile[at + 2 * row + 1]]).to_f32())
}

#[inline(always)]
fn exponents(tile: &[u8], at: usize) -> F {
    std::array::from_fn(|row| orlop_quant::mxfp4::half_scale(tile[at + row]))
}

#[inline(always)]
fn unsigned(tile: &[u8], at: usize) -> I {
    std::array::from_fn(|row| i32::from(tile[at + row]))
}

#[inline(always)]
fn signed(tile: &[u8], at: usize) -> I {
    std::array::from_fn(|row| i32::from(tile[at + row] as i8))
}

#[inline(always)]
fn nibbles<const SHIFT: u32>(tile: &[u8], at: usize) -> I {
    std::array::from_fn(|row| i32::from((tile[at + row] >> SHIFT) & 15))
}

#[inline(always)]
fn one() -> I {
    [1; 16]
}

#[inline(always)]
fn converted(v: I) -> F {
    v.map(|number| number as f32)
}

#[inline(always)]
fn product(a: F, b: F) -> F {
    std::array::from_fn(|row| a[row] * b[row])
}

#[inline(always)]
fn negative(a: F) -> F {
    a.map(|a| -a)
}

#[inline(always)]
fn zero() -> F {
    [0.0; 16]
}
