//! Fields of sixteen rows put side by side, and taken from there again.

use super::{ROWS, Source, TileField, TileSpec, UNPACKED_BYTES, Unit};

/// Puts the fields of one row's block into a tile.
fn interleave(spec: &TileSpec, block: &[u8], row: usize, tile: &mut [u8]) {
    let mut unpacked = [0; UNPACKED_BYTES];
    if let Some(form) = spec.unpacked {
        (form.unpack)(block, &mut unpacked);
    }
    for field in spec.fields {
        let from = if field.source == Source::Block { block } else { &unpacked };
        let from = &from[field.at..][..field.bytes];
        match field.unit {
            Unit::One => put::<1>(field, from, row, tile),
            Unit::Two => put::<2>(field, from, row, tile),
            Unit::Four => put::<4>(field, from, row, tile),
            Unit::Nibble => {
                for number in 0..2 * field.bytes {
                    let nibble = (from[number / 2] >> (4 * (number % 2))) & 15;
                    let byte = &mut tile[field.place(number) + row / 2];
                    let shift = 4 * (row % 2);
                    *byte = (*byte & !(15 << shift)) | (nibble << shift);
                }
            }
        }
    }
}

/// Puts rows into tiles, from place `first` on.
pub(crate) fn interleave_rows<'a>(
    spec: &TileSpec,
    rows: impl Iterator<Item = &'a [u8]>,
    first: usize,
    block: usize,
    tiles: &mut [u8],
) {
    for (place, row) in (first..ROWS).zip(rows) {
        for (block, tile) in row.chunks_exact(block).zip(tiles.chunks_exact_mut(spec.bytes)) {
            interleave(spec, block, place, tile);
        }
    }
}

/// The inverse of [`interleave`].
pub(super) fn extract(spec: &TileSpec, tile: &[u8], row: usize, block: &mut [u8]) {
    let mut unpacked = [0; UNPACKED_BYTES];
    for field in spec.fields {
        let to = if field.source == Source::Block { &mut *block } else { &mut unpacked };
        let to = &mut to[field.at..][..field.bytes];
        match field.unit {
            Unit::One => take::<1>(field, tile, row, to),
            Unit::Two => take::<2>(field, tile, row, to),
            Unit::Four => take::<4>(field, tile, row, to),
            Unit::Nibble => {
                to.fill(0);
                for number in 0..2 * field.bytes {
                    let byte = tile[field.place(number) + row / 2];
                    to[number / 2] |= ((byte >> (4 * (row % 2))) & 15) << (4 * (number % 2));
                }
            }
        }
    }
    if let Some(form) = spec.unpacked {
        (form.pack)(&unpacked, block);
    }
}

fn put<const UNIT: usize>(field: &TileField, from: &[u8], row: usize, tile: &mut [u8]) {
    for (number, from) in from.as_chunks::<UNIT>().0.iter().enumerate() {
        tile[field.place(number) + row * UNIT..][..UNIT].copy_from_slice(from);
    }
}

fn take<const UNIT: usize>(field: &TileField, tile: &[u8], row: usize, to: &mut [u8]) {
    for (number, to) in to.as_chunks_mut::<UNIT>().0.iter_mut().enumerate() {
        to.copy_from_slice(&tile[field.place(number) + row * UNIT..][..UNIT]);
    }
}
