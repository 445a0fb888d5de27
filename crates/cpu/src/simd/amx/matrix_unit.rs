//! Products of tiles: of 16 rows of activations and 16 rows of weights.

use std::arch::asm;

use super::{Products, ROWS, SpacedRows};
use crate::simd::activations::passes;

/// What multiplies tiles.
pub(super) trait MatrixUnit {
    /// For each pass, the products of the rows' numbers, from number `column` of a block on, with the vectors of a panel, each of
    /// which holds four elements of 16 rows.
    fn multiply<const B: usize, const PASSES: usize>(
        &self,
        rows: SpacedRows<'_, B>,
        block: usize,
        column: usize,
        weights: &[[f32; 16]],
        products: &mut Products<PASSES>,
    );
}

/// The processor's unit, with tiles for groups of some elements of some rows. The tiles are given back when this is dropped.
pub(super) struct Amx {
    group: usize,
    rows: usize,
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
    /// Tiles for groups of 16 or 32 elements of up to 16 rows: activations in 0 and 1, weights in 2, products in 4 and 5.
    ///
    /// # Safety
    /// The processor has AMX's 8-bit tiles, and the process may use them.
    pub(super) unsafe fn new(group: usize, rows: usize) -> Amx {
        assert!(matches!(group, 16 | 32) && (1..=ROWS).contains(&rows), "tiles that there are");
        let mut shapes =
            TileShapes { palette: 1, first_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let activations = (group as u16, rows as u8);
        let weights = (64, group as u8 / 4);
        let products = (64, rows as u8);
        for (tile, shape) in [(0, activations), (1, activations), (2, weights), (4, products), (5, products)]
        {
            (shapes.row_bytes[tile], shapes.rows[tile]) = shape;
        }
        // SAFETY: `ldtilecfg` asks for AMX, which the caller answers for, and reads 64 bytes, which `shapes` has. The compiler
        // keeps nothing in tiles.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, preserves_flags)) };
        Amx { group, rows }
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
    fn multiply<const B: usize, const PASSES: usize>(
        &self,
        rows: SpacedRows<'_, B>,
        block: usize,
        column: usize,
        weights: &[[f32; 16]],
        products: &mut Products<PASSES>,
    ) {
        assert!(weights.len() == self.group / 4 && column + self.group <= 32, "a group of these tiles");
        assert!(rows.rows.len() == self.rows && passes(B) == PASSES, "rows of these tiles");
        // In bounds for the first row, and so for the others, which are as long.
        let numbers = (&raw const rows.rows[0][block]).cast::<u8>().wrapping_add(column);
        let (weights, products) = (weights.as_ptr(), products.0.as_mut_ptr());
        if PASSES == 1 {
            // SAFETY: a value of this type proves AMX and the shapes of the tiles. `tileloadd` reads `group` bytes of a block of each
            // row of activations, which are `distance` apart, and `group / 4` whole vectors of weights, `tilestored` writes a
            // vector of products for each row; these are 64 bytes apart. The assertions keep all in bounds. The compiler keeps
            // nothing in tiles.
            unsafe {
                asm!(
                    "tileloadd tmm2, [{weights} + {vector}*1]",
                    "tileloadd tmm0, [{numbers} + {distance}*1]",
                    "tilezero tmm4",
                    "tdpbssd tmm4, tmm0, tmm2",
                    "tilestored [{products} + {vector}*1], tmm4",
                    weights = in(reg) weights,
                    numbers = in(reg) numbers,
                    products = in(reg) products,
                    distance = in(reg) rows.distance,
                    vector = in(reg) 64usize,
                    options(nostack, preserves_flags),
                );
            }
        } else {
            // SAFETY: as above; the lower bytes of a block follow 32 bytes behind the upper ones, and their products 1,024 bytes
            // behind those, as there are two passes.
            unsafe {
                asm!(
                    "tileloadd tmm2, [{weights} + {vector}*1]",
                    "tileloadd tmm0, [{numbers} + {distance}*1]",
                    "tileloadd tmm1, [{numbers} + {distance}*1 + 32]",
                    "tilezero tmm4",
                    "tdpbssd tmm4, tmm0, tmm2",
                    "tilezero tmm5",
                    "tdpbssd tmm5, tmm1, tmm2",
                    "tilestored [{products} + {vector}*1], tmm4",
                    "tilestored [{products} + {vector}*1 + 1024], tmm5",
                    weights = in(reg) weights,
                    numbers = in(reg) numbers,
                    products = in(reg) products,
                    distance = in(reg) rows.distance,
                    vector = in(reg) 64usize,
                    options(nostack, preserves_flags),
                );
            }
        }
    }
}
