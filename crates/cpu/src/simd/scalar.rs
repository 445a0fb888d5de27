//! Arrays as vectors: the reference for the vectors of every machine, in plain Rust.

use half::f16;

use super::activations::{Block, Tail, four_at, passes};
use super::product::PanelKind;
use super::tile_vector::{PartWork, TileVector};

/// Arrays as vectors.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

impl TileVector for Scalar {
    type Bytes = [u8; 64];
    type Ints = [i32; 16];
    type Floats = [f32; 16];

    const LARGEST_CODE: i32 = 255;

    #[inline(always)]
    fn load(self, from: &[u8; 64]) -> [u8; 64] {
        *from
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: [u8; 64]) -> [u8; 64] {
        bytes.map(|byte| byte & 15)
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: [u8; 64]) -> [u8; 64] {
        bytes.map(|byte| byte >> 4)
    }

    #[inline(always)]
    fn bit_pairs<const NUMBER: u32>(self, bytes: [u8; 64]) -> [u8; 64] {
        bytes.map(|byte| (byte >> (2 * NUMBER)) & 3)
    }

    #[inline(always)]
    fn join_bit_pair<const NUMBER: u32>(self, low: [u8; 64], pairs: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| low[i] | ((pairs[i] >> (2 * NUMBER)) & 3) << 4)
    }

    #[inline(always)]
    fn flip_signs(self, bytes: [u8; 64]) -> [u8; 64] {
        bytes.map(|byte| byte ^ 128)
    }

    #[inline(always)]
    fn look_up(self, indices: [u8; 64], table: &[u8; 16]) -> [u8; 64] {
        indices.map(|index| table[usize::from(index & 15)])
    }

    #[inline(always)]
    fn add_bit<const BIT: u8>(self, bytes: [u8; 64], mask: u64) -> [u8; 64] {
        std::array::from_fn(|i| bytes[i] | (((mask >> i) & 1) as u8 * BIT))
    }

    #[inline(always)]
    fn minus(self, codes: [u8; 64], bias: i32) -> [u8; 64] {
        codes.map(|code| (i32::from(code) - bias) as u8)
    }

    #[inline(always)]
    fn signed_byte<const NUMBER: u32>(self, bytes: [u8; 64]) -> [i32; 16] {
        std::array::from_fn(|row| i32::from(bytes[4 * row + NUMBER as usize] as i8))
    }

    #[inline(always)]
    fn load_f16(self, from: &[u8; 32]) -> [f32; 16] {
        std::array::from_fn(|row| f16::from_le_bytes([from[2 * row], from[2 * row + 1]]).to_f32())
    }

    #[inline(always)]
    fn load_exponents(self, from: &[u8; 16]) -> [f32; 16] {
        from.map(orlop_quant::mxfp4::half_scale)
    }

    #[inline(always)]
    fn load_small_floats(self, from: &[u8; 16]) -> [f32; 16] {
        from.map(orlop_quant::nvfp4::half_scale)
    }

    #[inline(always)]
    fn load_unsigned(self, from: &[u8; 16]) -> [i32; 16] {
        from.map(i32::from)
    }

    #[inline(always)]
    fn load_signed(self, from: &[u8; 16]) -> [i32; 16] {
        from.map(|byte| i32::from(byte as i8))
    }

    #[inline(always)]
    fn load_nibbles<const SHIFT: u32>(self, from: &[u8; 16]) -> [i32; 16] {
        from.map(|byte| i32::from((byte >> SHIFT) & 15))
    }

    #[inline(always)]
    fn splat_int(self, value: i32) -> [i32; 16] {
        [value; 16]
    }

    #[inline(always)]
    fn join_passes(self, upper: [i32; 16], lower: [i32; 16]) -> [i32; 16] {
        std::array::from_fn(|row| (upper[row] << 8) + lower[row])
    }

    #[inline(always)]
    fn to_floats(self, a: [i32; 16]) -> [f32; 16] {
        a.map(|a| a as f32)
    }

    #[inline(always)]
    fn add_products(self, sums: [i32; 16], codes: [u8; 64], bias: i32, four: i32) -> [i32; 16] {
        let four = four.to_le_bytes().map(|byte| i32::from(byte as i8));
        std::array::from_fn(|row| {
            sums[row] + (0..4).map(|j| (i32::from(codes[4 * row + j]) - bias) * four[j]).sum::<i32>()
        })
    }

    #[inline(always)]
    fn zero(self) -> [f32; 16] {
        [0.0; 16]
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; 16] {
        [value; 16]
    }

    #[inline(always)]
    fn negative(self, a: [f32; 16]) -> [f32; 16] {
        a.map(|a| -a)
    }

    #[inline(always)]
    fn mul(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|row| a[row] * b[row])
    }

    #[inline(always)]
    fn mul_add(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|row| a[row] * b[row] + c[row])
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; 16], value: [f32; 16]) {
        *to = value;
    }

    #[inline(always)]
    fn store_bytes(self, to: &mut [f32; 16], value: [u8; 64]) {
        for (to, four) in to.iter_mut().zip(value.as_chunks::<4>().0) {
            *to = f32::from_le_bytes(*four);
        }
    }

    #[inline(always)]
    fn call(self, part: impl PartWork<Scalar>) {
        part.run(self);
    }
}

/// The products of a panel with one row of signed activations.
pub(super) fn panel<const B: usize>(
    PanelKind { min, group, run, .. }: PanelKind,
    panel: &[f32],
    acts: &[Block<B>],
) -> [f32; 16] {
    let (groups, mut sums) = (32 / group, [0.0; 16]);
    let each = 128 + 32 * groups;
    for first in (0..acts.len()).step_by(run) {
        for number in 0..groups {
            let blocks = first..acts.len().min(first + run);
            for (panel, act) in panel[first * each..].chunks_exact(each).zip(&acts[blocks]) {
                let products = products(panel, act, number * group..(number + 1) * group);
                let tail = Tail::of(act);
                let (scales, mins) = panel[128 + 32 * number..][..32].split_at(16);
                let scaled_sum = tail.scaled_sum(number, groups);
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum += products[row] as f32 * (scales[row] * tail.scale);
                    if min {
                        *sum += mins[row] * scaled_sum;
                    }
                }
            }
        }
    }
    sums
}

/// The integer products of some elements of a block.
fn products<const B: usize>(panel: &[f32], act: &Block<B>, elements: std::ops::Range<usize>) -> [i32; 16] {
    let mut products = [0i32; 16];
    for pass in 0..passes(B) {
        for k in elements.clone().step_by(4) {
            let four = four_at(act, pass, k).to_le_bytes();
            for (product, weights) in products.iter_mut().zip(&panel[k * 4..]) {
                for (weight, act) in weights.to_le_bytes().iter().zip(four) {
                    *product +=
                        (i32::from(*weight as i8) * i32::from(act as i8)) << (8 * (passes(B) - 1 - pass));
                }
            }
        }
    }
    products
}
