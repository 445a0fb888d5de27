//! How the rows of one tensor lie in tiles.

use std::ops::Range;

use orlop_graph::{DType, TensorDesc};

use super::TileSpec;
use super::interleave::{extract, interleave_rows};
use crate::isa::Isa;
use crate::simd::pack::pack;
use crate::simd::tile_spec;

/// Rows of a group.
pub(crate) const ROWS: usize = 16;

/// How one tensor lies in tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedLayout {
    dtype: DType,
    tile: &'static TileSpec,
    /// Tiles of a group.
    tiles: usize,
    /// Rows of one matrix.
    rows: usize,
    matrices: usize,
}

impl PackedLayout {
    /// The layout of a tensor; `None` if its type is not repacked, or its sizes are beyond all memory.
    pub(crate) fn of(desc: &TensorDesc) -> Option<PackedLayout> {
        let tile = tile_spec(desc.dtype)?;
        let [length, rows, n2, n3] = desc.extents;
        let layout = PackedLayout {
            dtype: desc.dtype,
            tile,
            tiles: usize::try_from(length / desc.dtype.block_elements()).ok()?,
            rows: usize::try_from(rows).ok()?,
            matrices: usize::try_from(n2.checked_mul(n3)?).ok()?,
        };
        let group = layout.tile_bytes().checked_mul(layout.tiles)?;
        group.checked_mul(layout.groups())?.checked_mul(layout.matrices)?;
        Some(layout)
    }

    /// Groups of one matrix.
    pub(crate) fn groups(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Bytes of a tile.
    fn tile_bytes(&self) -> usize {
        self.tile.bytes
    }

    /// Bytes of a group.
    pub(crate) fn group_bytes(&self) -> usize {
        self.tile_bytes() * self.tiles
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        self.group_bytes() * self.groups() * self.matrices
    }

    fn block_bytes(&self) -> usize {
        self.dtype.block_bytes() as usize
    }

    /// Bytes of a row as it is stored.
    pub(crate) fn row_bytes(&self) -> usize {
        self.block_bytes() * self.tiles
    }

    /// The group and the place in it of a row, counted over all matrices.
    pub(crate) fn place(&self, row: usize) -> (usize, usize) {
        let (matrix, row) = (row / self.rows, row % self.rows);
        (matrix * self.groups() + row / ROWS, row % ROWS)
    }

    /// Rows of one group among `rows`, which are counted over all matrices and begin in it.
    pub(crate) fn first_of(&self, rows: &Range<usize>) -> Range<usize> {
        let in_matrix = rows.start % self.rows;
        let left = (ROWS - in_matrix % ROWS).min(self.rows - in_matrix);
        rows.start..rows.end.min(rows.start + left)
    }

    /// Packs the rows of one group from place `first` on; rows that are not given stay as they are.
    pub(crate) fn pack<'a>(&self, rows: impl Iterator<Item = &'a [u8]>, first: usize, group: &mut [u8]) {
        interleave_rows(self.tile, rows, first, self.block_bytes(), group);
    }

    /// As [`PackedLayout::pack`], from rows that lie one after the other; quick if these are all of a group.
    pub(crate) fn pack_rows(&self, isa: Isa, rows: &[u8], first: usize, group: &mut [u8]) {
        let row = self.row_bytes();
        if row > 0 && rows.len() == ROWS * row {
            pack(isa, self.tile, rows, self.block_bytes(), group);
        } else if row > 0 {
            self.pack(rows.chunks_exact(row), first, group);
        }
    }

    /// Tiles of a group, by the numbers of the blocks in them.
    pub(crate) fn tiles<'a>(&self, group: &'a [u8], blocks: Range<usize>) -> &'a [u8] {
        &group[blocks.start * self.tile_bytes()..blocks.end * self.tile_bytes()]
    }

    /// Blocks of the row at a place of a group, as they were stored, from block number `from` on.
    pub(crate) fn unpack(&self, group: &[u8], place: usize, from: usize, blocks: &mut [u8]) {
        let tiles = group.chunks_exact(self.tile_bytes()).skip(from);
        for (tile, block) in tiles.zip(blocks.chunks_exact_mut(self.block_bytes())) {
            extract(self.tile, tile, place, block);
        }
    }
}
