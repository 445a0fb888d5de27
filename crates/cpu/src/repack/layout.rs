use std::ops::Range;

use orlop_graph::{DType, TensorDesc};

use super::fields::{Cut, OPEN, cut, extract, interleave, interleave_all, tile_bytes};

/// Rows of a group.
pub(crate) const ROWS: usize = 16;

/// How one tensor lies in tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedLayout {
    dtype: DType,
    cut: Cut,
    tile: usize,
    /// Tiles of a group.
    tiles: usize,
    /// Rows of one matrix.
    rows: usize,
    matrices: usize,
}

impl PackedLayout {
    /// The layout of a tensor; `None` if its type is not repacked, or its sizes are beyond all memory.
    pub(crate) fn of(desc: &TensorDesc) -> Option<PackedLayout> {
        let cut = cut(desc.dtype)?;
        let [length, rows, n2, n3] = desc.extents;
        let layout = PackedLayout {
            dtype: desc.dtype,
            cut,
            tile: tile_bytes(cut.fields),
            tiles: usize::try_from(length / desc.dtype.block_elements()).ok()?,
            rows: usize::try_from(rows).ok()?,
            matrices: usize::try_from(n2.checked_mul(n3)?).ok()?,
        };
        let group = layout.tile.checked_mul(layout.tiles)?;
        group.checked_mul(layout.groups())?.checked_mul(layout.matrices)?;
        Some(layout)
    }

    /// Groups of one matrix.
    pub(crate) fn groups(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Bytes of a group.
    pub(crate) fn group_bytes(&self) -> usize {
        self.tile * self.tiles
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        self.group_bytes() * self.groups() * self.matrices
    }

    fn block_bytes(&self) -> usize {
        self.dtype.block_bytes() as usize
    }

    fn row_bytes(&self) -> usize {
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
    pub(crate) fn pack<'a>(
        &self,
        rows: impl Iterator<Item = &'a [u8]> + Clone,
        first: usize,
        group: &mut [u8],
    ) {
        let size = self.block_bytes();
        let mut all: [&[u8]; ROWS] = [&[]; ROWS];
        let count = all.iter_mut().zip(rows.clone()).map(|(place, row)| *place = row).count();
        if count == ROWS && first == 0 {
            return self.pack_all(&all, group);
        }
        let mut open = [0; OPEN];
        for (index, tile) in group.chunks_exact_mut(self.tile).enumerate() {
            for (place, row) in (first..ROWS).zip(rows.clone()) {
                let block = &row[index * size..][..size];
                match self.cut.open {
                    None => interleave(self.cut.fields, block, place, tile),
                    Some(opened) => {
                        (opened.open)(block, &mut open);
                        interleave(self.cut.fields, &open[..opened.bytes], place, tile);
                    }
                }
            }
        }
    }

    /// Packs all rows of a group.
    fn pack_all(&self, rows: &[&[u8]; ROWS], group: &mut [u8]) {
        let size = self.block_bytes();
        let mut open = [[0; OPEN]; ROWS];
        for (index, tile) in group.chunks_exact_mut(self.tile).enumerate() {
            let mut blocks: [&[u8]; ROWS] = [&[]; ROWS];
            for (block, row) in blocks.iter_mut().zip(rows) {
                *block = &row[index * size..][..size];
            }
            if let Some(opened) = self.cut.open {
                for (open, block) in open.iter_mut().zip(&blocks) {
                    (opened.open)(block, open);
                }
                let opened: [&[u8]; ROWS] = std::array::from_fn(|row| &open[row][..]);
                interleave_all(self.cut.fields, &opened, tile);
            } else {
                interleave_all(self.cut.fields, &blocks, tile);
            }
        }
    }

    /// As [`PackedLayout::pack`], from rows that lie one after the other.
    pub(crate) fn pack_rows(&self, rows: &[u8], first: usize, group: &mut [u8]) {
        if self.tiles > 0 {
            self.pack(rows.chunks_exact(self.row_bytes()), first, group);
        }
    }

    /// Blocks of the row at a place of a group, as they were stored, from block number `from` on.
    pub(crate) fn unpack(&self, group: &[u8], place: usize, from: usize, blocks: &mut [u8]) {
        let tiles = group.chunks_exact(self.tile).skip(from);
        let mut open = [0; OPEN];
        for (tile, block) in tiles.zip(blocks.chunks_exact_mut(self.block_bytes())) {
            match self.cut.open {
                None => extract(self.cut.fields, tile, place, block),
                Some(opened) => {
                    extract(self.cut.fields, tile, place, &mut open[..opened.bytes]);
                    (opened.close)(&open[..opened.bytes], block);
                }
            }
        }
    }
}
