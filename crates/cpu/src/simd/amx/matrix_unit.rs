//! Products of tiles: of 16 rows of activations and 16 rows of weights.

use std::arch::asm;

use super::{Numbers, Products, ROWS};

/// What multiplies tiles.
pub(super) trait MatrixUnit {
    /// For each pass, the products of the numbers from `column` on with the vectors of a panel, each of which holds four
    /// elements of 16 rows.
    fn multiply<const PASSES: usize>(
        &self,
        numbers: &Numbers,
        column: usize,
        weights: &[[f32; 16]],
        products: &mut Products<PASSES>,
    );
}

/// The processor's unit, with tiles for groups of some elements. The tiles are given back when this is dropped.
pub(super) struct Amx {
    group: usize,
}

/// What `ldtilecfg` reads: palette 1, and the bytes of a row and the rows of each tile.
#[repr(C, align(64))]
struct TileShapes {
    palette: u8,
    first_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Amx {
    /// Tiles for groups of 16 or 32 elements: activations in 0 and 1, weights in 2, products in 4 and 5.
    ///
    /// # Safety
    /// The processor has AMX's 8-bit tiles, and the process may use them.
    pub(super) unsafe fn new(group: usize) -> Amx {
        let mut shapes =
            TileShapes { palette: 1, first_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let activations = (group as u16, ROWS as u8);
        let weights = (64, group as u8 / 4);
        let products = (64, ROWS as u8);
        for (tile, shape) in [(0, activations), (1, activations), (2, weights), (4, products), (5, products)]
        {
            (shapes.row_bytes[tile], shapes.rows[tile]) = shape;
        }
        // SAFETY: `ldtilecfg` asks for AMX, which the caller answers for, and reads 64 bytes, which `shapes` has. The compiler
        // keeps nothing in tiles.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, preserves_flags)) };
        Amx { group }
    }
}

impl Drop for Amx {
    fn drop(&mut self) {
        // SAFETY: `tilerelease` asks for AMX, which the caller of `new` answered for. Nothing is kept in tiles.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

impl MatrixUnit for Amx {
    #[inline(always)]
    fn multiply<const PASSES: usize>(
        &self,
        numbers: &Numbers,
        column: usize,
        weights: &[[f32; 16]],
        products: &mut Products<PASSES>,
    ) {
        assert!(weights.len() == self.group / 4 && column + self.group <= 32, "a group of these tiles");
        let numbers = numbers.0.as_ptr().wrapping_byte_add(column);
        let (weights, products) = (weights.as_ptr(), products.0.as_mut_ptr());
        if PASSES == 1 {
            // SAFETY: a value of this type proves AMX and the shapes of the tiles. `tileloadd` reads `group` bytes of each of the
            // 16 rows of numbers and `group / 4` whole vectors of weights, `tilestored` writes 16 vectors of products, all of
            // them 64 bytes apart; the assertion keeps them in bounds. The compiler keeps nothing in tiles.
            unsafe {
                asm!(
                    "tileloadd tmm2, [{weights} + {row}*1]",
                    "tileloadd tmm0, [{numbers} + {row}*1]",
                    "tilezero tmm4",
                    "tdpbssd tmm4, tmm0, tmm2",
                    "tilestored [{products} + {row}*1], tmm4",
                    weights = in(reg) weights,
                    numbers = in(reg) numbers,
                    products = in(reg) products,
                    row = in(reg) 64usize,
                    options(nostack, preserves_flags),
                );
            }
        } else {
            // SAFETY: as above; the lower bytes follow 32 bytes behind the upper ones, and their products 1,024 bytes behind
            // those, as there are two passes.
            unsafe {
                asm!(
                    "tileloadd tmm2, [{weights} + {row}*1]",
                    "tileloadd tmm0, [{numbers} + {row}*1]",
                    "tileloadd tmm1, [{numbers} + {row}*1 + 32]",
                    "tilezero tmm4",
                    "tdpbssd tmm4, tmm0, tmm2",
                    "tilezero tmm5",
                    "tdpbssd tmm5, tmm1, tmm2",
                    "tilestored [{products} + {row}*1], tmm4",
                    "tilestored [{products} + {row}*1 + 1024], tmm5",
                    weights = in(reg) weights,
                    numbers = in(reg) numbers,
                    products = in(reg) products,
                    row = in(reg) 64usize,
                    options(nostack, preserves_flags),
                );
            }
        }
    }
}
