//! IQ1_M: 256 elements in 16 groups of 16, two entries of a codebook of 2048 each, each shifted in a direction of its own.

use crate::bits::{pack_planes, unpack_planes};
use crate::grid::{self, GridBlock, grid_codec};
use crate::grid_search::{GridSearch, Upper};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};

grid_codec!(layout::IQ1_M, GridSearch { grid: &grid::IQ1, upper: Upper::Shift(8), largest: 7 });

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const HIGH_BITS: BlockField = LAYOUT.field(FieldRole::HighBits);
const GROUP_SCALES: BlockField = LAYOUT.field(FieldRole::GroupScales);

/// Takes a block apart. Eight elements have eight bits of an index, three high bits and a direction. Four words have four
/// group scales of 3 bits each, and above them four bits of the block's scale, lowest first.
pub fn open(block: &[u8; BYTES]) -> GridBlock {
    let mut open = GridBlock::EMPTY;
    for (number, scales) in open.group_scales.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let word = crate::fields::u16_at(block, GROUP_SCALES.offset + 2 * number);
        *scales = [0, 3, 6, 9].map(|shift| (word >> shift & 7) as u8);
        open.scale |= word >> 12 << (4 * number);
    }
    let mut high = [0; 32];
    unpack_planes::<4, 1>(&block[HIGH_BITS.range()], &mut high);
    for (number, codes) in open.codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let index = u16::from(block[CODES.offset + number]) | u16::from(high[number] & 7) << 8;
        grid::IQ1.put_codes(index, if high[number] & 8 == 0 { 0 } else { 255 }, codes);
    }
    open
}

/// The inverse of [`open`].
pub fn close(open: &GridBlock, block: &mut [u8; BYTES]) {
    for (number, scales) in open.group_scales.as_chunks::<4>().0.iter().enumerate() {
        let word = (0..4).map(|place| u16::from(scales[place] & 7) << (3 * place)).sum::<u16>();
        let word = word | (open.scale >> (4 * number) & 15) << 12;
        block[GROUP_SCALES.offset + 2 * number..][..2].copy_from_slice(&word.to_le_bytes());
    }
    let mut high = [0; 32];
    for (number, codes) in open.codes.as_chunks::<8>().0.iter().enumerate() {
        let (index, shift) = grid::IQ1.index_and_upper(codes);
        block[CODES.offset + number] = index as u8;
        high[number] = (index >> 8) as u8 | (shift & 1) << 3;
    }
    pack_planes::<4, 1>(&high, &mut block[HIGH_BITS.range()]);
}
