//! The codebooks of the IQ1, IQ2 and IQ3 types, and their blocks taken apart.
//!
//! An entry of a codebook says the level of each of eight (or four) neighbouring elements. Levels are magnitudes, whose signs
//! are stored beside (IQ2, IQ3), or -1, 0 and 1, which are shifted by an eighth up or down (IQ1). Taken apart, an element's
//! code is the number of its level and, above it, the sign or the direction of the shift:
//! `scale / 2^shift * (2 * group_scale + 1) * values[code]`.

use std::sync::OnceLock;

use half::f16;

use crate::grid_search::NearEntries;
use crate::layout::{BlockLayout, Integers};

/// A codebook.
#[derive(Debug)]
pub struct Grid {
    /// The level numbers of each entry, those of element 0 in the lowest bits; in ascending order.
    pub entries: &'static [u16],
    /// Bits of a level number.
    pub bits: u32,
    /// Elements of an entry.
    pub size: usize,
    /// The level of each number, without sign or shift.
    pub levels: &'static [i8],
    near: OnceLock<NearEntries>,
}

/// A codebook file: see `grids/generate.py`.
const fn entries<const N: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u16; N] {
    assert!(BYTES == 2 * N);
    let (mut entries, mut index) = ([0; N], 0);
    while index < N {
        entries[index] = u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]);
        index += 1;
    }
    entries
}

/// The codebook of IQ1_S and IQ1_M.
pub static IQ1: Grid = Grid::new(&entries::<2048, _>(include_bytes!("../grids/iq1.bin")), &[-1, 0, 1]);
/// The codebook of IQ2_XXS.
pub static IQ2_XXS: Grid = Grid::new(&entries::<256, _>(include_bytes!("../grids/iq2_xxs.bin")), IQ2_LEVELS);
/// The codebook of IQ2_XS.
pub static IQ2_XS: Grid = Grid::new(&entries::<512, _>(include_bytes!("../grids/iq2_xs.bin")), IQ2_LEVELS);
/// The codebook of IQ2_S.
pub static IQ2_S: Grid = Grid::new(&entries::<1024, _>(include_bytes!("../grids/iq2_s.bin")), IQ2_LEVELS);
/// The codebook of IQ3_XXS.
pub static IQ3_XXS: Grid =
    Grid::new(&entries::<256, _>(include_bytes!("../grids/iq3_xxs.bin")), &[4, 12, 20, 28, 36, 44, 52, 62]);
/// The codebook of IQ3_S.
pub static IQ3_S: Grid =
    Grid::new(&entries::<512, _>(include_bytes!("../grids/iq3_s.bin")), &[1, 3, 5, 7, 9, 11, 13, 15]);

const IQ2_LEVELS: &[i8] = &[8, 25, 43];

/// Eight times -1, 0 and 1, plus 1; with the upper bit, minus 1.
pub const IQ1_VALUES: [i8; 16] = [-7, 1, 9, 0, -9, -1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Three magnitudes; with the upper bit, negative.
pub const IQ2_VALUES: [i8; 16] = [8, 25, 43, 0, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Eight magnitudes; with the upper bit, negative.
pub const IQ3_XXS_VALUES: [i8; 16] = [4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62];
/// Eight magnitudes; with the upper bit, negative.
pub const IQ3_S_VALUES: [i8; 16] = [1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15];

impl Grid {
    const fn new(entries: &'static [u16], levels: &'static [i8]) -> Grid {
        let (bits, size) = if levels.len() == 3 { (2, 8) } else { (3, 4) };
        Grid { entries, bits, size, levels, near: OnceLock::new() }
    }

    /// The entries near every combination of levels.
    pub(crate) fn near(&self) -> &NearEntries {
        self.near.get_or_init(|| NearEntries::of(self))
    }

    /// The codes of an entry's elements; `upper` has the upper bit of each, that of element 0 lowest.
    #[inline]
    pub fn put_codes(&self, index: u16, upper: u8, codes: &mut [u8]) {
        let entry = self.entries[usize::from(index)];
        let mask = (1 << self.bits) - 1;
        for (element, code) in (0u32..).zip(codes) {
            *code = ((entry >> (self.bits * element)) as u8 & mask) | ((upper >> element) & 1) << self.bits;
        }
    }

    /// The inverse of [`Grid::put_codes`]. Levels that are no entry give one near them in the order of entries.
    pub fn index_and_upper(&self, codes: &[u8]) -> (u16, u8) {
        let mask = (1 << self.bits) - 1;
        let (mut entry, mut upper) = (0, 0);
        for (element, code) in (0u32..).zip(codes) {
            entry |= u16::from(code & mask) << (self.bits * element);
            upper |= (code >> self.bits & 1) << element;
        }
        let index =
            self.entries.binary_search(&entry).unwrap_or_else(|near| near.min(self.entries.len() - 1));
        (index as u16, upper)
    }
}

/// The eight sign bits that a code of seven stands for: the eighth makes the number of negative elements even.
pub fn even_signs(code: u8) -> u8 {
    let code = code & 127;
    code | ((code.count_ones() & 1) as u8) << 7
}

/// A block of 256 elements taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridBlock {
    /// The scale's bits, as F16.
    pub scale: u16,
    /// The stored number of each group; the last half is unused where groups have 32 elements.
    pub group_scales: [u8; 16],
    /// The code of each element.
    pub codes: [u8; 256],
}

impl GridBlock {
    /// A block of zeros.
    pub(crate) const EMPTY: GridBlock = GridBlock { scale: 0, group_scales: [0; 16], codes: [0; 256] };

    /// The integers that codes stand for.
    pub(crate) fn quants(&self, layout: &BlockLayout) -> [i8; 256] {
        let Integers::Table(values) = layout.codes else { unreachable!("codebooks have tables of values") };
        self.codes.map(|code| values[usize::from(code & 15)])
    }

    pub(crate) fn decode(&self, layout: &BlockLayout, out: &mut [f32; 256]) {
        let scale = f16::from_bits(self.scale).to_f32() / (1 << layout.scale_shift) as f32;
        let quants = self.quants(layout);
        let groups = out.chunks_exact_mut(layout.group).zip(quants.chunks_exact(layout.group));
        for ((out, quants), stored) in groups.zip(self.group_scales) {
            let scale = scale * f32::from(2 * stored + 1);
            for (out, quant) in out.iter_mut().zip(quants) {
                *out = scale * f32::from(*quant);
            }
        }
    }
}

/// The functions that the types with a codebook share, but for `open` and `close`.
macro_rules! grid_codec {
    ($layout:expr, $search:expr) => {
        /// Where the fields of a block are.
        pub const LAYOUT: BlockLayout = $layout;
        /// Elements of one block.
        pub const ELEMENTS: usize = LAYOUT.elements;
        /// Bytes of one block.
        pub const BYTES: usize = LAYOUT.bytes;

        /// The integers to multiply with scale and group scale.
        pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
            open(block).quants(&LAYOUT)
        }

        /// Decodes one block.
        pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
            open(block).decode(&LAYOUT, out);
        }

        /// Encodes one block.
        pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
            encode_weighted(values, None, block);
        }

        /// Encodes one block with the least squared error, each element's weighted by its importance.
        pub fn encode_weighted(
            values: &[f32; ELEMENTS],
            importance: Option<&[f32; ELEMENTS]>,
            block: &mut [u8; BYTES],
        ) {
            const SEARCH: crate::grid_search::GridSearch = $search;
            close(&SEARCH.encode(&LAYOUT, values, importance), block);
        }

        #[cfg(test)]
        mod tests {
            #[test]
            fn closing_undoes_opening() {
                for seed in 0..64u32 {
                    let byte =
                        |at: usize| ((seed * 7919 + at as u32 + 1).wrapping_mul(2_654_435_761) >> 13) as u8;
                    let block: [u8; super::BYTES] = std::array::from_fn(byte);
                    let mut again = [0xa5; super::BYTES];
                    super::close(&super::open(&block), &mut again);
                    assert_eq!(again, block);
                }
            }
        }
    };
}
pub(crate) use grid_codec;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_ascending_and_name_levels() {
        for (grid, levels) in
            [(&IQ1, 3), (&IQ2_XXS, 3), (&IQ2_XS, 3), (&IQ2_S, 3), (&IQ3_XXS, 8), (&IQ3_S, 8)]
        {
            assert!(grid.entries.is_sorted_by(|a, b| a < b));
            for (index, _) in grid.entries.iter().enumerate() {
                let mut codes = vec![0; grid.size];
                grid.put_codes(index as u16, 0b0110_1001, &mut codes);
                assert!(codes.iter().all(|code| u32::from(code & ((1 << grid.bits) - 1)) < levels));
                let upper = 0b0110_1001 & ((1u16 << grid.size) - 1) as u8;
                assert_eq!(grid.index_and_upper(&codes), (index as u16, upper));
            }
        }
    }

    #[test]
    fn the_eighth_sign_makes_their_number_even() {
        for code in 0..128 {
            assert_eq!(even_signs(code) & 127, code);
            assert!(even_signs(code).count_ones().is_multiple_of(2));
        }
    }
}
