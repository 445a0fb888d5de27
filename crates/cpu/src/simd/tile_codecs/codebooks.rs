//! Types whose codes are not those of tiles: indices into codebooks, ternary digits, and blocks of other sizes. Repacking
//! makes 1, 2, 3 or 4 bits of them that a table of weights or a bias turns into weights.
#![allow(non_camel_case_types)] // the names are the format's own

use orlop_quant::FieldRole::{Codes, Scale};
use orlop_quant::{grid, layout, mxfp4};

use super::blocks_256::{half_group_of, ternary_steps};
use super::{Steps, TileCodec, biased, bytes_at, mask_at};
use crate::repack::Unit::{Four, Nibble, One, Two};
use crate::repack::codebooks::*;
use crate::repack::{TileField, TileSpec};
use crate::simd::activations::Block;
use crate::simd::tile_vector::TileVector;

/// A table of weights for codes of three bits: pairs of bits, and a third bit for each element; scales for 32 elements.
macro_rules! three_bits_32 {
    ($name:ident, $values:path, $unpacked:path) => {
        pub(super) enum $name {}

        impl $name {
            const SCALE: TileField = TileField::unpacked(BLOCK_SCALE, Two, 0);
            const SCALES: TileField = TileField::unpacked(SCALES_OF_32, One, 32);
            const BITS: TileField = TileField::unpacked(THIRD_BITS, Nibble, 160);
            const CODES: TileField = TileField::unpacked(BIT_PAIRS, Four, 672);
            const TABLE: [u8; 16] = biased(&$values, Self::TILE.bias());
        }

        impl TileCodec for $name {
            const TILE: TileSpec = TileSpec {
                bytes: 1696,
                parts: 4,
                slots: 2,
                unpacked: Some($unpacked),
                fields: &[Self::SCALE, Self::SCALES, Self::BITS, Self::CODES],
                ..TileSpec::of(layout::$name)
            }
            .checked();
            type Tile = [u8; Self::TILE.bytes];
            type Activations<const B: usize> = [Block<B>; 8];

            #[inline(always)]
            fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>) {
                let (chunk, half) = (part / 2, part % 2);
                for s in 0..8 {
                    let bytes = v.load(bytes_at(tile, Self::CODES.place(8 * chunk + s)));
                    let (k, bits) = (128 * chunk + 64 * half + 4 * s, 32 * chunk + 16 * half + s);
                    let pairs = if half == 0 {
                        [v.bit_pairs::<0>(bytes), v.bit_pairs::<1>(bytes)]
                    } else {
                        [v.bit_pairs::<2>(bytes), v.bit_pairs::<3>(bytes)]
                    };
                    let first = v.add_bit::<4>(pairs[0], mask_at(tile, Self::BITS.place(bits)));
                    to.step(v, 0, k, v.look_up(first, &Self::TABLE));
                    let second = v.add_bit::<4>(pairs[1], mask_at(tile, Self::BITS.place(bits + 8)));
                    to.step(v, 1, k + 32, v.look_up(second, &Self::TABLE));
                }
            }

            #[inline(always)]
            fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
                scale_of::<V>(v, tile, &Self::SCALE, &Self::TILE)
            }

            #[inline(always)]
            fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
                v.load_unsigned(bytes_at(tile, Self::SCALES.place(group)))
            }
        }
    };
}

/// The same with scales for 16 elements.
macro_rules! three_bits_16 {
    ($name:ident, $values:path, $unpacked:path) => {
        pub(super) enum $name {}

        impl $name {
            const SCALE: TileField = TileField::unpacked(BLOCK_SCALE, Two, 0);
            const SCALES: TileField = TileField::unpacked(SCALES_OF_16, One, 32);
            const BITS: TileField = TileField::unpacked(THIRD_BITS, Nibble, 288);
            const CODES: TileField = TileField::unpacked(BIT_PAIRS, Four, 800);
            const TABLE: [u8; 16] = biased(&$values, Self::TILE.bias());
        }

        impl TileCodec for $name {
            const TILE: TileSpec = TileSpec {
                bytes: 1824,
                parts: 4,
                slots: 4,
                unpacked: Some($unpacked),
                fields: &[Self::SCALE, Self::SCALES, Self::BITS, Self::CODES],
                ..TileSpec::of(layout::$name)
            }
            .checked();
            type Tile = [u8; Self::TILE.bytes];
            type Activations<const B: usize> = [Block<B>; 8];

            #[inline(always)]
            fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>) {
                let (chunk, half) = (part / 2, part % 2);
                for s in 4 * half..4 * half + 4 {
                    let bytes = v.load(bytes_at(tile, Self::CODES.place(8 * chunk + s)));
                    let (k, bits) = (128 * chunk + 4 * s, 32 * chunk + s);
                    let [a, b, c, d] = [bits, bits + 8, bits + 16, bits + 24];
                    let a = v.add_bit::<4>(v.bit_pairs::<0>(bytes), mask_at(tile, Self::BITS.place(a)));
                    to.step(v, 0, k, v.look_up(a, &Self::TABLE));
                    let b = v.add_bit::<4>(v.bit_pairs::<1>(bytes), mask_at(tile, Self::BITS.place(b)));
                    to.step(v, 1, k + 32, v.look_up(b, &Self::TABLE));
                    let c = v.add_bit::<4>(v.bit_pairs::<2>(bytes), mask_at(tile, Self::BITS.place(c)));
                    to.step(v, 2, k + 64, v.look_up(c, &Self::TABLE));
                    let d = v.add_bit::<4>(v.bit_pairs::<3>(bytes), mask_at(tile, Self::BITS.place(d)));
                    to.step(v, 3, k + 96, v.look_up(d, &Self::TABLE));
                }
            }

            #[inline(always)]
            fn group_of(part: usize, slot: usize) -> usize {
                half_group_of(part, slot)
            }

            #[inline(always)]
            fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
                scale_of::<V>(v, tile, &Self::SCALE, &Self::TILE)
            }

            #[inline(always)]
            fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
                v.load_unsigned(bytes_at(tile, Self::SCALES.place(group)))
            }
        }
    };
}

/// A table of weights for codes of four bits; scales for 32 elements.
macro_rules! four_bits_32 {
    ($name:ident, $values:path, $unpacked:path) => {
        pub(super) enum $name {}

        impl $name {
            const SCALE: TileField = TileField::unpacked(BLOCK_SCALE, Two, 0);
            const SCALES: TileField = TileField::unpacked(SCALES_OF_32, One, 32).chunked(1, 272);
            const CODES: TileField = TileField::unpacked(NIBBLES, Four, 48).chunked(4, 272);
            const TABLE: [u8; 16] = biased(&$values, Self::TILE.bias());
        }

        impl TileCodec for $name {
            const TILE: TileSpec = TileSpec {
                bytes: 2208,
                parts: 8,
                slots: 1,
                unpacked: Some($unpacked),
                fields: &[Self::SCALE, Self::SCALES, Self::CODES],
                ..TileSpec::of(layout::$name)
            }
            .checked();
            type Tile = [u8; Self::TILE.bytes];
            type Activations<const B: usize> = [Block<B>; 8];

            #[inline(always)]
            fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>) {
                for j in 0..4 {
                    let bytes = v.load(bytes_at(tile, Self::CODES.place(4 * part + j)));
                    to.step(v, 0, 32 * part + 4 * j, v.look_up(v.low_nibbles(bytes), &Self::TABLE));
                    to.step(v, 0, 32 * part + 16 + 4 * j, v.look_up(v.high_nibbles(bytes), &Self::TABLE));
                }
            }

            #[inline(always)]
            fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
                scale_of::<V>(v, tile, &Self::SCALE, &Self::TILE)
            }

            #[inline(always)]
            fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
                v.load_unsigned(bytes_at(tile, Self::SCALES.place(group)))
            }
        }
    };
}

three_bits_32!(IQ1_S, grid::IQ1_VALUES, IQ1_S_CODES);
three_bits_32!(IQ2_XXS, grid::IQ2_VALUES, IQ2_XXS_CODES);
three_bits_16!(IQ1_M, grid::IQ1_VALUES, IQ1_M_CODES);
three_bits_16!(IQ2_XS, grid::IQ2_VALUES, IQ2_XS_CODES);
three_bits_16!(IQ2_S, grid::IQ2_VALUES, IQ2_S_CODES);
four_bits_32!(IQ3_XXS, grid::IQ3_XXS_VALUES, IQ3_XXS_CODES);
four_bits_32!(IQ3_S, grid::IQ3_S_VALUES, IQ3_S_CODES);

#[inline(always)]
fn scale_of<V: TileVector>(v: V, tile: &[u8], field: &TileField, spec: &TileSpec) -> V::Floats {
    let factor = 1.0 / (1 << spec.block.scale_shift) as f32;
    v.mul(v.load_f16(bytes_at(tile, field.place(0))), v.splat(factor))
}

/// Ternary digits as pairs of bits, one scale: the tile of TQ2_0.
pub(super) enum TQ1_0 {}

impl TQ1_0 {
    const CODES: TileField = TileField::unpacked(BIT_PAIRS, Four, 0);
    const SCALE: TileField = TileField::of(&layout::TQ1_0, Scale, Two, 1024);
}

impl TileCodec for TQ1_0 {
    const TILE: TileSpec = TileSpec {
        bytes: 1056,
        parts: 4,
        slots: 2,
        unpacked: Some(TQ1_0_CODES),
        fields: &[Self::CODES, Self::SCALE],
        ..TileSpec::of(layout::TQ1_0)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 8];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>) {
        ternary_steps(v, tile, &Self::CODES, part, to);
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }
}

/// A bit for each element, one scale for 128. Steps have codes 0 and 2.
pub(super) enum Q1_0 {}

impl Q1_0 {
    const CODES: TileField = TileField::of(&layout::Q1_0, Codes, Nibble, 0);
    const SCALE: TileField = TileField::of(&layout::Q1_0, Scale, Two, 256);
}

impl TileCodec for Q1_0 {
    const TILE: TileSpec =
        TileSpec { bytes: 288, slots: 4, fields: &[Self::CODES, Self::SCALE], ..TileSpec::of(layout::Q1_0) }
            .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 4];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        let zeros = v.load(&[0; 64]);
        for number in 0..32 {
            let codes = v.add_bit::<2>(zeros, mask_at(tile, Self::CODES.place(number)));
            to.step(v, number / 8, 4 * number, codes);
        }
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }
}

/// Pairs of bits, one scale for 64 elements.
pub(super) enum Q2_0 {}

impl Q2_0 {
    const CODES: TileField = TileField::unpacked(FEW_BIT_PAIRS, Four, 0);
    const SCALE: TileField = TileField::of(&layout::Q2_0, Scale, Two, 256);
}

impl TileCodec for Q2_0 {
    const TILE: TileSpec = TileSpec {
        bytes: 288,
        slots: 2,
        unpacked: Some(Q2_0_CODES),
        fields: &[Self::CODES, Self::SCALE],
        ..TileSpec::of(layout::Q2_0)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 2];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        for s in 0..4 {
            let bytes = v.load(bytes_at(tile, Self::CODES.place(s)));
            to.step(v, 0, 4 * s, v.bit_pairs::<0>(bytes));
            to.step(v, 0, 16 + 4 * s, v.bit_pairs::<1>(bytes));
            to.step(v, 1, 32 + 4 * s, v.bit_pairs::<2>(bytes));
            to.step(v, 1, 48 + 4 * s, v.bit_pairs::<3>(bytes));
        }
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }
}

/// 4-bit indices into a table, an 8-bit float for 16 elements. A block has four groups.
pub(super) enum NVFP4 {}

impl NVFP4 {
    const CODES: TileField = TileField::of(&layout::NVFP4, Codes, Four, 0);
    const SCALES: TileField = TileField::of(&layout::NVFP4, Scale, One, 512);
    const TABLE: [u8; 16] = biased(&mxfp4::VALUES, Self::TILE.bias());
}

impl TileCodec for NVFP4 {
    const TILE: TileSpec = TileSpec {
        bytes: 576,
        slots: 4,
        fields: &[Self::CODES, Self::SCALES],
        ..TileSpec::of(layout::NVFP4)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 2];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        for unit in 0..8 {
            let bytes = v.load(bytes_at(tile, Self::CODES.place(unit)));
            // Groups 0, 2, 1, 3 have slots 0 to 3.
            let group = unit / 2;
            let (slot, k) = (group / 2 + 2 * (group % 2), 16 * group + 4 * (unit % 2));
            to.step(v, slot, k, v.look_up(v.low_nibbles(bytes), &Self::TABLE));
            to.step(v, slot, k + 8, v.look_up(v.high_nibbles(bytes), &Self::TABLE));
        }
    }

    #[inline(always)]
    fn group_of(_part: usize, slot: usize) -> usize {
        2 * (slot % 2) + slot / 2
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        Self::group_scale(v, tile, 0)
    }

    #[inline(always)]
    fn group_scale<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Floats {
        v.load_small_floats(bytes_at(tile, Self::SCALES.place(group)))
    }
}
