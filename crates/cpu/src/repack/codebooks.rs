//! Blocks with indices into a codebook, or with codes in an order that vectors cannot read, unpacked: scales, pairs of bits
//! and third bits, or nibbles, for each element.

use std::ops::Range;

use orlop_quant::FieldRole::Codes;
use orlop_quant::bits::{pack_planes, unpack_planes};
use orlop_quant::grid::GridBlock;
use orlop_quant::layout::Q2_0;
use orlop_quant::{iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, tq1_0};

use super::UNPACKED_BYTES;
use super::unpacked::Unpacked;

/// The integers of eight groups: odd numbers.
pub(crate) const SCALES_OF_32: Range<usize> = 0..8;
/// The integers of sixteen groups.
pub(crate) const SCALES_OF_16: Range<usize> = 0..16;
/// The block's scale, F16.
pub(crate) const BLOCK_SCALE: Range<usize> = 16..18;
/// A bit for each of 256 elements, in their order.
pub(crate) const THIRD_BITS: Range<usize> = 18..50;
/// Two bits for each of 256 elements: those of elements `j`, `32 + j`, `64 + j` and `96 + j` of 128 in a byte.
pub(crate) const BIT_PAIRS: Range<usize> = 50..114;
/// Four bits for each of 256 elements: those of elements `j` and `16 + j` of 32 in a byte.
pub(crate) const NIBBLES: Range<usize> = 18..146;
/// Two bits for each of 64 elements: those of elements `j`, `16 + j`, `32 + j` and `48 + j` in a byte.
pub(crate) const FEW_BIT_PAIRS: Range<usize> = 0..16;

fn put_scales(block: &GridBlock, unpacked: &mut [u8; UNPACKED_BYTES]) {
    for (to, stored) in unpacked[SCALES_OF_16].iter_mut().zip(block.group_scales) {
        *to = 2 * stored + 1;
    }
    unpacked[BLOCK_SCALE].copy_from_slice(&block.scale.to_le_bytes());
}

fn scales_of(unpacked: &[u8; UNPACKED_BYTES], groups: usize) -> GridBlock {
    let mut group_scales = [0; 16];
    for (stored, number) in group_scales.iter_mut().zip(&unpacked[..groups]) {
        *stored = number / 2;
    }
    let scale = u16::from_le_bytes([unpacked[BLOCK_SCALE.start], unpacked[BLOCK_SCALE.start + 1]]);
    GridBlock { scale, group_scales, codes: [0; 256] }
}

fn put_three_bits(block: &GridBlock, unpacked: &mut [u8; UNPACKED_BYTES]) {
    put_scales(block, unpacked);
    pack_planes::<2, 32>(&block.codes, &mut unpacked[BIT_PAIRS]);
    pack_planes::<1, 1>(&block.codes.map(|code| code >> 2), &mut unpacked[THIRD_BITS]);
}

fn three_bits_of(unpacked: &[u8; UNPACKED_BYTES], groups: usize) -> GridBlock {
    let mut block = scales_of(unpacked, groups);
    let mut high = [0; 256];
    unpack_planes::<2, 32>(&unpacked[BIT_PAIRS], &mut block.codes);
    unpack_planes::<1, 1>(&unpacked[THIRD_BITS], &mut high);
    for (code, high) in block.codes.iter_mut().zip(high) {
        *code |= high << 2;
    }
    block
}

fn put_four_bits(block: &GridBlock, unpacked: &mut [u8; UNPACKED_BYTES]) {
    put_scales(block, unpacked);
    pack_planes::<4, 16>(&block.codes, &mut unpacked[NIBBLES]);
}

fn four_bits_of(unpacked: &[u8; UNPACKED_BYTES], groups: usize) -> GridBlock {
    let mut block = scales_of(unpacked, groups);
    unpack_planes::<4, 16>(&unpacked[NIBBLES], &mut block.codes);
    block
}

/// The block of a type with a codebook, by the functions that open and close it.
macro_rules! codebooks {
    ($($name:ident: $codec:ident, $put:ident, $of:ident;)*) => {
        $(pub(crate) const $name: Unpacked = Unpacked {
            unpack: |block, unpacked| {
                let block = block.first_chunk().expect("a whole block");
                $put(&$codec::open(block), unpacked);
            },
            pack: |unpacked, block| {
                let groups = $codec::ELEMENTS / $codec::LAYOUT.group;
                let block = block.first_chunk_mut().expect("a whole block");
                $codec::close(&$of(unpacked, groups), block);
            },
        };)*
    };
}

codebooks! {
    IQ1_S_CODES: iq1_s, put_three_bits, three_bits_of;
    IQ1_M_CODES: iq1_m, put_three_bits, three_bits_of;
    IQ2_XXS_CODES: iq2_xxs, put_three_bits, three_bits_of;
    IQ2_XS_CODES: iq2_xs, put_three_bits, three_bits_of;
    IQ2_S_CODES: iq2_s, put_three_bits, three_bits_of;
    IQ3_XXS_CODES: iq3_xxs, put_four_bits, four_bits_of;
    IQ3_S_CODES: iq3_s, put_four_bits, four_bits_of;
}

/// Ternary digits. Bytes that stand for the same digits come back as the one that encoding gives.
pub(crate) const TQ1_0_CODES: Unpacked = Unpacked {
    unpack: |block, unpacked| {
        let codes = tq1_0::codes(block.first_chunk().expect("a whole block"));
        pack_planes::<2, 32>(&codes, &mut unpacked[BIT_PAIRS]);
    },
    pack: |unpacked, block| {
        let mut codes = [0; 256];
        unpack_planes::<2, 32>(&unpacked[BIT_PAIRS], &mut codes);
        tq1_0::put_codes(&codes, block.first_chunk_mut().expect("a whole block"));
    },
};

pub(crate) const Q2_0_CODES: Unpacked = Unpacked {
    unpack: |block, unpacked| {
        let mut codes = [0; 64];
        unpack_planes::<2, 1>(&block[Q2_0.field(Codes).range()], &mut codes);
        pack_planes::<2, 16>(&codes, &mut unpacked[FEW_BIT_PAIRS]);
    },
    pack: |unpacked, block| {
        let mut codes = [0; 64];
        unpack_planes::<2, 16>(&unpacked[FEW_BIT_PAIRS], &mut codes);
        pack_planes::<2, 1>(&codes, &mut block[Q2_0.field(Codes).range()]);
    },
};
