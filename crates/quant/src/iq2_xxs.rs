//! IQ2_XXS: 256 elements in 8 groups of 32, four entries of a codebook of 256 with signs each.

use crate::grid::{self, GridBlock, even_signs, grid_codec};
use crate::grid_search::{GridSearch, Upper};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};

grid_codec!(layout::IQ2_XXS, GridSearch { grid: &grid::IQ2_XXS, upper: Upper::EvenSigns, largest: 15 });

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Takes a block apart. A group has four bytes of indices and a word: four sign codes of 7 bits, the group scale on top.
pub fn open(block: &[u8; BYTES]) -> GridBlock {
    let mut open = GridBlock { scale: crate::fields::u16_at(block, SCALE.offset), ..GridBlock::EMPTY };
    let groups = open.codes.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut();
    for ((stored, group_scale), codes) in
        block[CODES.range()].as_chunks::<8>().0.iter().zip(&mut open.group_scales).zip(groups)
    {
        let [a, b, c, d, word @ ..] = *stored;
        let word = u32::from_le_bytes(word);
        *group_scale = (word >> 28) as u8;
        for ((number, index), codes) in (0u32..).zip([a, b, c, d]).zip(codes.as_chunks_mut::<8>().0) {
            grid::IQ2_XXS.put_codes(u16::from(index), even_signs((word >> (7 * number)) as u8), codes);
        }
    }
    open
}

/// The inverse of [`open`].
pub fn close(open: &GridBlock, block: &mut [u8; BYTES]) {
    block[SCALE.range()].copy_from_slice(&open.scale.to_le_bytes());
    let groups = open.codes.as_chunks::<{ LAYOUT.group }>().0.iter().zip(open.group_scales);
    for (stored, (codes, group_scale)) in block[CODES.range()].as_chunks_mut::<8>().0.iter_mut().zip(groups) {
        let mut word = u32::from(group_scale) << 28;
        for (number, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
            let (index, signs) = grid::IQ2_XXS.index_and_upper(codes);
            stored[number] = index as u8;
            word |= u32::from(signs & 127) << (7 * number);
        }
        stored[4..].copy_from_slice(&word.to_le_bytes());
    }
}
