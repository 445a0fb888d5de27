//! IQ3_S: 256 elements in 8 groups of 32, eight entries of a codebook of 512 with signs each.

use crate::bits::{pack_planes, unpack_planes};
use crate::grid::{self, GridBlock, grid_codec};
use crate::grid_search::{GridSearch, Upper};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};

grid_codec!(layout::IQ3_S, GridSearch { grid: &grid::IQ3_S, upper: Upper::Signs, largest: 15 });

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const HIGH_BITS: BlockField = LAYOUT.field(FieldRole::HighBits);
const SIGNS: BlockField = LAYOUT.field(FieldRole::Signs);
const GROUP_SCALES: BlockField = LAYOUT.field(FieldRole::GroupScales);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Takes a block apart. Four elements have eight bits of an index, a high bit and four sign bits.
pub fn open(block: &[u8; BYTES]) -> GridBlock {
    let mut open = GridBlock { scale: crate::fields::u16_at(block, SCALE.offset), ..GridBlock::EMPTY };
    unpack_planes::<4, 1>(&block[GROUP_SCALES.range()], &mut open.group_scales[..8]);
    let (mut high, mut signs) = ([0; 64], [0; 64]);
    unpack_planes::<1, 1>(&block[HIGH_BITS.range()], &mut high);
    unpack_planes::<4, 1>(&block[SIGNS.range()], &mut signs);
    for (number, codes) in open.codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let index = u16::from(block[CODES.offset + number]) | u16::from(high[number]) << 8;
        grid::IQ3_S.put_codes(index, signs[number], codes);
    }
    open
}

/// The inverse of [`open`].
pub fn close(open: &GridBlock, block: &mut [u8; BYTES]) {
    block[SCALE.range()].copy_from_slice(&open.scale.to_le_bytes());
    pack_planes::<4, 1>(&open.group_scales[..8], &mut block[GROUP_SCALES.range()]);
    let (mut high, mut signs) = ([0; 64], [0; 64]);
    for (number, codes) in open.codes.as_chunks::<4>().0.iter().enumerate() {
        let (index, upper) = grid::IQ3_S.index_and_upper(codes);
        block[CODES.offset + number] = index as u8;
        (high[number], signs[number]) = ((index >> 8) as u8, upper);
    }
    pack_planes::<1, 1>(&high, &mut block[HIGH_BITS.range()]);
    pack_planes::<4, 1>(&signs, &mut block[SIGNS.range()]);
}
