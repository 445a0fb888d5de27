//! IQ1_S: 256 elements in 8 groups of 32, four entries of a codebook of 2048 each, all shifted in one direction.

use crate::grid::{self, GridBlock, grid_codec};
use crate::grid_search::{GridSearch, Upper};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};

grid_codec!(layout::IQ1_S, GridSearch { grid: &grid::IQ1, upper: Upper::Shift(LAYOUT.group), largest: 7 });

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const HIGH_BITS: BlockField = LAYOUT.field(FieldRole::HighBits);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Takes a block apart. A group has eight bits of each index, and a word: three high bits of each, the group scale (3 bits),
/// the direction of the shift.
pub fn open(block: &[u8; BYTES]) -> GridBlock {
    let mut open = GridBlock { scale: crate::fields::u16_at(block, SCALE.offset), ..GridBlock::EMPTY };
    for (group, codes) in open.codes.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().enumerate() {
        let word = crate::fields::u16_at(block, HIGH_BITS.offset + 2 * group);
        open.group_scales[group] = (word >> 12 & 7) as u8;
        let shift = if word >> 15 == 0 { 0 } else { 255 };
        for (number, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let index = u16::from(block[CODES.offset + 4 * group + number]) | (word >> (3 * number) & 7) << 8;
            grid::IQ1.put_codes(index, shift, codes);
        }
    }
    open
}

/// The inverse of [`open`].
pub fn close(open: &GridBlock, block: &mut [u8; BYTES]) {
    block[SCALE.range()].copy_from_slice(&open.scale.to_le_bytes());
    for (group, codes) in open.codes.as_chunks::<{ LAYOUT.group }>().0.iter().enumerate() {
        let mut word = u16::from(open.group_scales[group]) << 12;
        for (number, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
            let (index, shift) = grid::IQ1.index_and_upper(codes);
            block[CODES.offset + 4 * group + number] = index as u8;
            word |= (index >> 8) << (3 * number) | u16::from(shift & 1) << 15;
        }
        block[HIGH_BITS.offset + 2 * group..][..2].copy_from_slice(&word.to_le_bytes());
    }
}
