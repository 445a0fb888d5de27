//! Types with blocks of 32 elements and one scale. Their tiles have one part with one slot.
#![allow(non_camel_case_types)] // the names are the format's own

use orlop_quant::FieldRole::{Codes, HighBits, Min, Scale};
use orlop_quant::{iq4, layout, mxfp4};

use super::{Steps, TileCodec, biased, bytes_at, mask_at};
use crate::repack::Unit::{Four, Nibble, One, Two};
use crate::repack::{TileField, TileSpec};
use crate::simd::activations::Block;
use crate::simd::tile_vector::TileVector;

/// Nibbles of elements `k..k + 4` and `k + 16..k + 20` of every row, for `k` in steps of four.
macro_rules! nibble_steps {
    ($v:ident, $tile:ident, $to:ident, |$number:ident, $codes:ident| $code:expr) => {
        for j in 0..4 {
            let bytes = $v.load(bytes_at($tile, Self::CODES.place(j)));
            let ($number, $codes) = (j, $v.low_nibbles(bytes));
            $to.step($v, 0, 4 * j, $code);
            let ($number, $codes) = (4 + j, $v.high_nibbles(bytes));
            $to.step($v, 0, 16 + 4 * j, $code);
        }
    };
}

/// 4-bit codes, a scale.
pub(super) enum Q4_0 {}

impl Q4_0 {
    const CODES: TileField = TileField::of(&layout::Q4_0, Codes, Four, 0);
    const SCALE: TileField = TileField::of(&layout::Q4_0, Scale, Two, 256);
}

impl TileCodec for Q4_0 {
    const TILE: TileSpec =
        TileSpec { bytes: 288, fields: &[Self::CODES, Self::SCALE], ..TileSpec::of(layout::Q4_0) }.checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 1];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        nibble_steps!(v, tile, to, |_number, codes| codes);
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }
}

/// 4-bit codes, a scale and a minimum.
pub(super) enum Q4_1 {}

impl Q4_1 {
    const CODES: TileField = TileField::of(&layout::Q4_1, Codes, Four, 0);
    const SCALE: TileField = TileField::of(&layout::Q4_1, Scale, Two, 256);
    const MIN: TileField = TileField::of(&layout::Q4_1, Min, Two, 288);
}

impl TileCodec for Q4_1 {
    const TILE: TileSpec =
        TileSpec { bytes: 320, fields: &[Self::CODES, Self::SCALE, Self::MIN], ..TileSpec::of(layout::Q4_1) }
            .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 1];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        nibble_steps!(v, tile, to, |_number, codes| codes);
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }

    #[inline(always)]
    fn min<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::MIN.place(0)))
    }
}

/// 5-bit codes, a scale. The fifth bits of four elements of all rows are 64 bits.
pub(super) enum Q5_0 {}

impl Q5_0 {
    const CODES: TileField = TileField::of(&layout::Q5_0, Codes, Four, 0);
    const HIGH_BITS: TileField = TileField::of(&layout::Q5_0, HighBits, Nibble, 256);
    const SCALE: TileField = TileField::of(&layout::Q5_0, Scale, Two, 320);
}

impl TileCodec for Q5_0 {
    const TILE: TileSpec = TileSpec {
        bytes: 352,
        fields: &[Self::CODES, Self::HIGH_BITS, Self::SCALE],
        ..TileSpec::of(layout::Q5_0)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 1];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        nibble_steps!(v, tile, to, |number, codes| {
            v.add_bit::<16>(codes, mask_at(tile, Self::HIGH_BITS.place(number)))
        });
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }
}

/// 5-bit codes, a scale and a minimum.
pub(super) enum Q5_1 {}

impl Q5_1 {
    const CODES: TileField = TileField::of(&layout::Q5_1, Codes, Four, 0);
    const HIGH_BITS: TileField = TileField::of(&layout::Q5_1, HighBits, Nibble, 256);
    const SCALE: TileField = TileField::of(&layout::Q5_1, Scale, Two, 320);
    const MIN: TileField = TileField::of(&layout::Q5_1, Min, Two, 352);
}

impl TileCodec for Q5_1 {
    const TILE: TileSpec = TileSpec {
        bytes: 384,
        fields: &[Self::CODES, Self::HIGH_BITS, Self::SCALE, Self::MIN],
        ..TileSpec::of(layout::Q5_1)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 1];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        nibble_steps!(v, tile, to, |number, codes| {
            v.add_bit::<16>(codes, mask_at(tile, Self::HIGH_BITS.place(number)))
        });
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }

    #[inline(always)]
    fn min<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::MIN.place(0)))
    }
}

/// Signed bytes, a scale. Steps have them plus 128.
pub(super) enum Q8_0 {}

impl Q8_0 {
    const CODES: TileField = TileField::of(&layout::Q8_0, Codes, Four, 0);
    const SCALE: TileField = TileField::of(&layout::Q8_0, Scale, Two, 512);
}

impl TileCodec for Q8_0 {
    const TILE: TileSpec =
        TileSpec { bytes: 544, fields: &[Self::CODES, Self::SCALE], ..TileSpec::of(layout::Q8_0) }.checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 1];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        for j in 0..8 {
            to.step(v, 0, 4 * j, v.flip_signs(v.load(bytes_at(tile, Self::CODES.place(j)))));
        }
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }
}

/// 4-bit indices into a table, a scale.
pub(super) enum IQ4_NL {}

impl IQ4_NL {
    const CODES: TileField = TileField::of(&layout::IQ4_NL, Codes, Four, 0);
    const SCALE: TileField = TileField::of(&layout::IQ4_NL, Scale, Two, 256);
    const TABLE: [u8; 16] = biased(&iq4::VALUES, Self::TILE.bias());
}

impl TileCodec for IQ4_NL {
    const TILE: TileSpec =
        TileSpec { bytes: 288, fields: &[Self::CODES, Self::SCALE], ..TileSpec::of(layout::IQ4_NL) }
            .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 1];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        nibble_steps!(v, tile, to, |_number, codes| v.look_up(codes, &Self::TABLE));
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }
}

/// 4-bit indices into a table, an exponent.
pub(super) enum MXFP4 {}

impl MXFP4 {
    const CODES: TileField = TileField::of(&layout::MXFP4, Codes, Four, 0);
    const SCALE: TileField = TileField::of(&layout::MXFP4, Scale, One, 256);
    const TABLE: [u8; 16] = biased(&mxfp4::VALUES, Self::TILE.bias());
}

impl TileCodec for MXFP4 {
    const TILE: TileSpec =
        TileSpec { bytes: 272, fields: &[Self::CODES, Self::SCALE], ..TileSpec::of(layout::MXFP4) }.checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 1];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], _part: usize, to: &mut impl Steps<V>) {
        nibble_steps!(v, tile, to, |_number, codes| v.look_up(codes, &Self::TABLE));
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_exponents(bytes_at(tile, Self::SCALE.place(0)))
    }
}
