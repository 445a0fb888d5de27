//! IQ2_S: 256 elements in 16 groups of 16, two entries of a codebook of 1024 with signs each.

use crate::bits::{pack_planes, unpack_planes};
use crate::grid::{self, GridBlock, grid_codec};
use crate::grid_search::{GridSearch, Upper};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};

grid_codec!(layout::IQ2_S, GridSearch { grid: &grid::IQ2_S, upper: Upper::Signs, largest: 15 });

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SIGNS: BlockField = LAYOUT.field(FieldRole::Signs);
const HIGH_BITS: BlockField = LAYOUT.field(FieldRole::HighBits);
const GROUP_SCALES: BlockField = LAYOUT.field(FieldRole::GroupScales);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Takes a block apart. Eight elements have a byte of signs, eight bits of an index and two high bits.
pub fn open(block: &[u8; BYTES]) -> GridBlock {
    let mut open = GridBlock { scale: crate::fields::u16_at(block, SCALE.offset), ..GridBlock::EMPTY };
    unpack_planes::<4, 1>(&block[GROUP_SCALES.range()], &mut open.group_scales);
    let mut high = [0; 32];
    unpack_planes::<2, 1>(&block[HIGH_BITS.range()], &mut high);
    for (number, codes) in open.codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let index = u16::from(block[CODES.offset + number]) | u16::from(high[number]) << 8;
        grid::IQ2_S.put_codes(index, block[SIGNS.offset + number], codes);
    }
    open
}

/// The inverse of [`open`].
pub fn close(open: &GridBlock, block: &mut [u8; BYTES]) {
    block[SCALE.range()].copy_from_slice(&open.scale.to_le_bytes());
    pack_planes::<4, 1>(&open.group_scales, &mut block[GROUP_SCALES.range()]);
    let mut high = [0; 32];
    for (number, codes) in open.codes.as_chunks::<8>().0.iter().enumerate() {
        let (index, signs) = grid::IQ2_S.index_and_upper(codes);
        block[CODES.offset + number] = index as u8;
        block[SIGNS.offset + number] = signs;
        high[number] = (index >> 8) as u8;
    }
    pack_planes::<2, 1>(&high, &mut block[HIGH_BITS.range()]);
}
