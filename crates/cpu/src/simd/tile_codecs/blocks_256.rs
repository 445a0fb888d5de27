//! Types with blocks of 256 elements and an integer for the scale of each group.
#![allow(non_camel_case_types)] // the names are the format's own

use orlop_quant::FieldRole::{Codes, GroupScales, HighBits, Min, Scale};
use orlop_quant::{iq4, layout};

use super::{Steps, TileCodec, biased, bytes_at, mask_at};
use crate::repack::Unit::{Four, Nibble, One, Two};
use crate::repack::unpacked::{
    HIGH_BITS, IQ4_XS_SCALES, K_SCALES, K_SCALES_AND_BITS, MINS_8, Q3_K_SCALES_AND_BITS, SCALES_8, SCALES_16,
};
use crate::repack::{TileField, TileSpec};
use crate::simd::activations::Block;
use crate::simd::tile_vector::TileVector;

/// 4-bit codes; scales and minima for 32 elements. Each part has two groups: their integers, then their codes.
pub(super) enum Q4_K {}

impl Q4_K {
    const SCALE: TileField = TileField::of(&layout::Q4_K, Scale, Two, 0);
    const MIN: TileField = TileField::of(&layout::Q4_K, Min, Two, 32);
    const SCALES: TileField = TileField::unpacked(SCALES_8, One, 64).chunked(2, 576);
    const MINS: TileField = TileField::unpacked(MINS_8, One, 96).chunked(2, 576);
    const CODES: TileField = TileField::of(&layout::Q4_K, Codes, Four, 128).chunked(8, 576);
}

impl TileCodec for Q4_K {
    const TILE: TileSpec = TileSpec {
        bytes: 2368,
        parts: 4,
        slots: 2,
        unpacked: Some(K_SCALES),
        fields: &[Self::SCALE, Self::MIN, Self::SCALES, Self::MINS, Self::CODES],
        ..TileSpec::of(layout::Q4_K)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 8];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>) {
        for s in 0..8 {
            let bytes = v.load(bytes_at(tile, Self::CODES.place(8 * part + s)));
            to.step(v, 0, 64 * part + 4 * s, v.low_nibbles(bytes));
            to.step(v, 1, 64 * part + 32 + 4 * s, v.high_nibbles(bytes));
        }
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }

    #[inline(always)]
    fn min<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.negative(v.load_f16(bytes_at(tile, Self::MIN.place(0))))
    }

    #[inline(always)]
    fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_unsigned(bytes_at(tile, Self::SCALES.place(group)))
    }

    #[inline(always)]
    fn min_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_unsigned(bytes_at(tile, Self::MINS.place(group)))
    }
}

/// 5-bit codes; as Q4_K, with the fifth bits in front of the codes of each part.
pub(super) enum Q5_K {}

impl Q5_K {
    const SCALE: TileField = TileField::of(&layout::Q5_K, Scale, Two, 0);
    const MIN: TileField = TileField::of(&layout::Q5_K, Min, Two, 32);
    const SCALES: TileField = TileField::unpacked(SCALES_8, One, 64).chunked(2, 704);
    const MINS: TileField = TileField::unpacked(MINS_8, One, 96).chunked(2, 704);
    const BITS: TileField = TileField::unpacked(HIGH_BITS, Nibble, 128).chunked(16, 704);
    const CODES: TileField = TileField::of(&layout::Q5_K, Codes, Four, 256).chunked(8, 704);
}

impl TileCodec for Q5_K {
    const TILE: TileSpec = TileSpec {
        bytes: 2880,
        parts: 4,
        slots: 2,
        unpacked: Some(K_SCALES_AND_BITS),
        fields: &[Self::SCALE, Self::MIN, Self::SCALES, Self::MINS, Self::BITS, Self::CODES],
        ..TileSpec::of(layout::Q5_K)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 8];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>) {
        for s in 0..8 {
            let bytes = v.load(bytes_at(tile, Self::CODES.place(8 * part + s)));
            let low = mask_at(tile, Self::BITS.place(16 * part + s));
            to.step(v, 0, 64 * part + 4 * s, v.add_bit::<16>(v.low_nibbles(bytes), low));
            let high = mask_at(tile, Self::BITS.place(16 * part + 8 + s));
            to.step(v, 1, 64 * part + 32 + 4 * s, v.add_bit::<16>(v.high_nibbles(bytes), high));
        }
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }

    #[inline(always)]
    fn min<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.negative(v.load_f16(bytes_at(tile, Self::MIN.place(0))))
    }

    #[inline(always)]
    fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_unsigned(bytes_at(tile, Self::SCALES.place(group)))
    }

    #[inline(always)]
    fn min_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_unsigned(bytes_at(tile, Self::MINS.place(group)))
    }
}

/// 4-bit indices into a table; scales for 32 elements. Each part has one group: its integer, then its codes.
pub(super) enum IQ4_XS {}

impl IQ4_XS {
    const SCALE: TileField = TileField::of(&layout::IQ4_XS, Scale, Two, 0);
    const SCALES: TileField = TileField::unpacked(SCALES_8, One, 32).chunked(1, 272);
    const CODES: TileField = TileField::of(&layout::IQ4_XS, Codes, Four, 48).chunked(4, 272);
    const TABLE: [u8; 16] = biased(&iq4::VALUES, Self::TILE.bias());
}

impl TileCodec for IQ4_XS {
    const TILE: TileSpec = TileSpec {
        bytes: 2208,
        parts: 8,
        slots: 1,
        unpacked: Some(IQ4_XS_SCALES),
        fields: &[Self::SCALE, Self::SCALES, Self::CODES],
        ..TileSpec::of(layout::IQ4_XS)
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
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }

    #[inline(always)]
    fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_signed(bytes_at(tile, Self::SCALES.place(group)))
    }
}

/// The group of a slot where groups have 16 elements. 128 elements are two parts, of which the first has the first half of
/// every 32.
#[inline(always)]
pub(super) fn half_group_of(part: usize, slot: usize) -> usize {
    8 * (part / 2) + 2 * slot + part % 2
}

/// 6-bit codes; signed scales for 16 elements. Chunks of 128 elements: the scales, then eight times two vectors of low bits
/// and one of the high bits that go with both.
pub(super) enum Q6_K {}

impl Q6_K {
    const SCALE: TileField = TileField::of(&layout::Q6_K, Scale, Two, 0);
    const SCALES: TileField = TileField::of(&layout::Q6_K, GroupScales, One, 32).chunked(8, 1664);
    const CODES: TileField =
        TileField::of(&layout::Q6_K, Codes, Four, 160).interleaved(192, 8, 64).chunked(16, 1664);
    const BITS: TileField =
        TileField::of(&layout::Q6_K, HighBits, Four, 288).interleaved(192, 8, 0).chunked(8, 1664);
}

impl TileCodec for Q6_K {
    const TILE: TileSpec = TileSpec {
        bytes: 3360,
        parts: 4,
        slots: 4,
        fields: &[Self::SCALE, Self::SCALES, Self::CODES, Self::BITS],
        ..TileSpec::of(layout::Q6_K)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 8];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>) {
        let (chunk, half) = (part / 2, part % 2);
        for s in 4 * half..4 * half + 4 {
            let a = v.load(bytes_at(tile, Self::CODES.place(16 * chunk + s)));
            let b = v.load(bytes_at(tile, Self::CODES.place(16 * chunk + 8 + s)));
            let high = v.load(bytes_at(tile, Self::BITS.place(8 * chunk + s)));
            let k = 128 * chunk + 4 * s;
            to.step(v, 0, k, v.join_bit_pair::<0>(v.low_nibbles(a), high));
            to.step(v, 1, k + 32, v.join_bit_pair::<1>(v.low_nibbles(b), high));
            to.step(v, 2, k + 64, v.join_bit_pair::<2>(v.high_nibbles(a), high));
            to.step(v, 3, k + 96, v.join_bit_pair::<3>(v.high_nibbles(b), high));
        }
    }

    #[inline(always)]
    fn group_of(part: usize, slot: usize) -> usize {
        half_group_of(part, slot)
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }

    #[inline(always)]
    fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_signed(bytes_at(tile, Self::SCALES.place(group)))
    }
}

/// 2-bit codes; scales and minima for 16 elements, a byte for both. Chunks of 128 elements.
pub(super) enum Q2_K {}

impl Q2_K {
    const SCALE: TileField = TileField::of(&layout::Q2_K, Scale, Two, 0);
    const MIN: TileField = TileField::of(&layout::Q2_K, Min, Two, 32);
    const SCALES: TileField = TileField::of(&layout::Q2_K, GroupScales, One, 64).chunked(8, 640);
    const CODES: TileField = TileField::of(&layout::Q2_K, Codes, Four, 192).chunked(8, 640);
}

impl TileCodec for Q2_K {
    const TILE: TileSpec = TileSpec {
        bytes: 1344,
        parts: 4,
        slots: 4,
        fields: &[Self::SCALE, Self::MIN, Self::SCALES, Self::CODES],
        ..TileSpec::of(layout::Q2_K)
    }
    .checked();
    type Tile = [u8; Self::TILE.bytes];
    type Activations<const B: usize> = [Block<B>; 8];

    #[inline(always)]
    fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>) {
        let (chunk, half) = (part / 2, part % 2);
        for s in 4 * half..4 * half + 4 {
            let bytes = v.load(bytes_at(tile, Self::CODES.place(8 * chunk + s)));
            let k = 128 * chunk + 4 * s;
            to.step(v, 0, k, v.bit_pairs::<0>(bytes));
            to.step(v, 1, k + 32, v.bit_pairs::<1>(bytes));
            to.step(v, 2, k + 64, v.bit_pairs::<2>(bytes));
            to.step(v, 3, k + 96, v.bit_pairs::<3>(bytes));
        }
    }

    #[inline(always)]
    fn group_of(part: usize, slot: usize) -> usize {
        half_group_of(part, slot)
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }

    #[inline(always)]
    fn min<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.negative(v.load_f16(bytes_at(tile, Self::MIN.place(0))))
    }

    #[inline(always)]
    fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_nibbles::<0>(bytes_at(tile, Self::SCALES.place(group)))
    }

    #[inline(always)]
    fn min_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_nibbles::<4>(bytes_at(tile, Self::SCALES.place(group)))
    }
}

/// The steps of a part of bit pairs in two groups: half of the pairs of a chunk of 128 elements.
#[inline(always)]
pub(super) fn ternary_steps<V: TileVector>(
    v: V,
    tile: &[u8],
    codes: &TileField,
    part: usize,
    to: &mut impl Steps<V>,
) {
    let (chunk, half) = (part / 2, part % 2);
    for s in 0..8 {
        let bytes = v.load(bytes_at(tile, codes.place(8 * chunk + s)));
        let k = 128 * chunk + 64 * half + 4 * s;
        if half == 0 {
            to.step(v, 0, k, v.bit_pairs::<0>(bytes));
            to.step(v, 1, k + 32, v.bit_pairs::<1>(bytes));
        } else {
            to.step(v, 0, k, v.bit_pairs::<2>(bytes));
            to.step(v, 1, k + 32, v.bit_pairs::<3>(bytes));
        }
    }
}

/// 2-bit codes and one scale. Each part has two groups: half of the bit pairs of a chunk of 128 elements.
pub(super) enum TQ2_0 {}

impl TQ2_0 {
    const CODES: TileField = TileField::of(&layout::TQ2_0, Codes, Four, 0);
    const SCALE: TileField = TileField::of(&layout::TQ2_0, Scale, Two, 1024);
}

impl TileCodec for TQ2_0 {
    const TILE: TileSpec = TileSpec {
        bytes: 1056,
        parts: 4,
        slots: 2,
        fields: &[Self::CODES, Self::SCALE],
        ..TileSpec::of(layout::TQ2_0)
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

/// 3-bit codes; signed scales for 16 elements. Chunks of 128 elements: the scales, the third bits, the others.
pub(super) enum Q3_K {}

impl Q3_K {
    const SCALE: TileField = TileField::of(&layout::Q3_K, Scale, Two, 0);
    const SCALES: TileField = TileField::unpacked(SCALES_16, One, 32).chunked(8, 896);
    const BITS: TileField = TileField::unpacked(HIGH_BITS, Nibble, 160).chunked(32, 896);
    const CODES: TileField = TileField::of(&layout::Q3_K, Codes, Four, 416).chunked(8, 896);

    /// The third bits of four elements of all rows.
    #[inline(always)]
    fn third_bits(tile: &[u8], unit: usize) -> u64 {
        mask_at(tile, Self::BITS.place(unit))
    }
}

impl TileCodec for Q3_K {
    const TILE: TileSpec = TileSpec {
        bytes: 1824,
        parts: 4,
        slots: 4,
        unpacked: Some(Q3_K_SCALES_AND_BITS),
        fields: &[Self::SCALE, Self::SCALES, Self::BITS, Self::CODES],
        ..TileSpec::of(layout::Q3_K)
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
            to.step(v, 0, k, v.add_bit::<4>(v.bit_pairs::<0>(bytes), Self::third_bits(tile, a)));
            to.step(v, 1, k + 32, v.add_bit::<4>(v.bit_pairs::<1>(bytes), Self::third_bits(tile, b)));
            to.step(v, 2, k + 64, v.add_bit::<4>(v.bit_pairs::<2>(bytes), Self::third_bits(tile, c)));
            to.step(v, 3, k + 96, v.add_bit::<4>(v.bit_pairs::<3>(bytes), Self::third_bits(tile, d)));
        }
    }

    #[inline(always)]
    fn group_of(part: usize, slot: usize) -> usize {
        half_group_of(part, slot)
    }

    #[inline(always)]
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats {
        v.load_f16(bytes_at(tile, Self::SCALE.place(0)))
    }

    #[inline(always)]
    fn scale_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        v.load_signed(bytes_at(tile, Self::SCALES.place(group)))
    }
}
