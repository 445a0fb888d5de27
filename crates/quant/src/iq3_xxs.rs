//! IQ3_XXS: 256 elements in 8 groups of 32, eight entries of a codebook of 256 with signs each.

use crate::grid::{self, GridBlock, even_signs, grid_codec};
use crate::grid_search::{GridSearch, Upper};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};

grid_codec!(layout::IQ3_XXS, GridSearch { grid: &grid::IQ3_XXS, upper: Upper::EvenSigns, largest: 15 });

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SIGNS: BlockField = LAYOUT.field(FieldRole::Signs);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Takes a block apart. A group has eight indices and a word: four sign codes of 7 bits, the group scale on top.
pub fn open(block: &[u8; BYTES]) -> GridBlock {
    let mut open = GridBlock { scale: crate::fields::u16_at(block, SCALE.offset), ..GridBlock::EMPTY };
    let words = block[SIGNS.range()].as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    for (word, group_scale) in words.clone().zip(&mut open.group_scales) {
        *group_scale = (word >> 28) as u8;
    }
    let signs = words.flat_map(|word| [0, 7, 14, 21].map(|shift| even_signs((word >> shift) as u8)));
    let indices = block[CODES.range()].as_chunks::<2>().0;
    for ((codes, indices), signs) in open.codes.as_chunks_mut::<8>().0.iter_mut().zip(indices).zip(signs) {
        let (first, second) = codes.split_at_mut(4);
        grid::IQ3_XXS.put_codes(u16::from(indices[0]), signs, first);
        grid::IQ3_XXS.put_codes(u16::from(indices[1]), signs >> 4, second);
    }
    open
}

/// The inverse of [`open`].
pub fn close(open: &GridBlock, block: &mut [u8; BYTES]) {
    block[SCALE.range()].copy_from_slice(&open.scale.to_le_bytes());
    for (group, codes) in open.codes.as_chunks::<{ LAYOUT.group }>().0.iter().enumerate() {
        let mut word = u32::from(open.group_scales[group]) << 28;
        for (number, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
            let (first, low) = grid::IQ3_XXS.index_and_upper(&codes[..4]);
            let (second, high) = grid::IQ3_XXS.index_and_upper(&codes[4..]);
            block[CODES.offset + 8 * group + 2 * number..][..2].copy_from_slice(&[first as u8, second as u8]);
            word |= u32::from((low | high << 4) & 127) << (7 * number);
        }
        block[SIGNS.offset + 4 * group..][..4].copy_from_slice(&word.to_le_bytes());
    }
}
