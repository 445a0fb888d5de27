//! IQ2_XS: 256 elements in 16 groups of 16, two entries of a codebook of 512 with signs each.

use crate::bits::{pack_planes, unpack_planes};
use crate::grid::{self, GridBlock, even_signs, grid_codec};
use crate::grid_search::{GridSearch, Upper};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};

grid_codec!(layout::IQ2_XS, GridSearch { grid: &grid::IQ2_XS, upper: Upper::EvenSigns, largest: 15 });

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const GROUP_SCALES: BlockField = LAYOUT.field(FieldRole::GroupScales);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Takes a block apart. Eight elements have a word: nine bits of an index, a sign code of 7.
pub fn open(block: &[u8; BYTES]) -> GridBlock {
    let mut open = GridBlock { scale: crate::fields::u16_at(block, SCALE.offset), ..GridBlock::EMPTY };
    unpack_planes::<4, 1>(&block[GROUP_SCALES.range()], &mut open.group_scales);
    let words = block[CODES.range()].as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word));
    for (word, codes) in words.zip(open.codes.as_chunks_mut::<8>().0) {
        grid::IQ2_XS.put_codes(word & 511, even_signs((word >> 9) as u8), codes);
    }
    open
}

/// The inverse of [`open`].
pub fn close(open: &GridBlock, block: &mut [u8; BYTES]) {
    block[SCALE.range()].copy_from_slice(&open.scale.to_le_bytes());
    pack_planes::<4, 1>(&open.group_scales, &mut block[GROUP_SCALES.range()]);
    let words = block[CODES.range()].as_chunks_mut::<2>().0.iter_mut();
    for (word, codes) in words.zip(open.codes.as_chunks::<8>().0) {
        let (index, signs) = grid::IQ2_XS.index_and_upper(codes);
        *word = (index | u16::from(signs & 127) << 9).to_le_bytes();
    }
}
