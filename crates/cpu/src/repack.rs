//! Weights repacked for the device's vectors.
//!
//! Rows are kept in groups of [`ROWS`]. For each block along a row, a *tile* holds that block of all rows of the
//! group, field by field: four neighbouring bytes of row 0, then of row 1, and so on, so that a vector of 64 bytes
//! is four elements of sixteen rows, and a vector of scales is one scale of each. Bits stay packed. Every matrix
//! begins a group of its own; a last group that is not full is padded with zeros.

mod buffer;
pub(crate) mod codebooks;
mod interleave;
mod layout;
#[cfg(test)]
mod tests;
mod tile;
pub(crate) mod unpacked;

pub(crate) use buffer::PackedBufferType;
pub(crate) use interleave::interleave_rows;
pub(crate) use layout::{PackedLayout, ROWS};
pub(crate) use tile::{MAX_SLOTS, Source, TileField, TileSpec, Unit};
pub(crate) use unpacked::UNPACKED_BYTES;
