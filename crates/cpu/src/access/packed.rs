//! Weights and activations in place: rows without gaps, and groups of rows in the device's own tiles.

use std::ops::Range;

use orlop_graph::DType;

use super::{Dst, RowIndex, Scratch, Src, decode, row_offset};
use crate::isa::Isa;
use crate::repack::{PackedLayout, ROWS};
use crate::simd::prefetch::{Far, prefetch, prefetch_to_write};
use crate::task::repeated;
use crate::vector::function::Add;
use crate::vector::{FloatsMut, Zip, on};

/// At least the bytes of a block of every type.
const MAX_BLOCK_BYTES: usize = 512;
/// A tensor of at most this many bytes is prefetched whole.
const SMALL: u64 = 16 << 10;
/// Bytes that are prefetched of each matrix of a larger tensor, and the most matrices of one.
const HEAD_BYTES: usize = 512;
const MAX_HEADS: u64 = 8;

impl Src {
    /// The tiles of a repacked tensor.
    pub(crate) fn packed(&self) -> Option<&PackedLayout> {
        self.packed.as_ref()
    }

    /// The bytes of row `at` in place; its blocks have no gaps. Only for operands that the step's result does not overlap:
    /// no thread writes them while the step runs.
    pub(crate) fn row(&self, at: RowIndex) -> &[u8] {
        assert!(self.packed.is_none() && self.desc.rows_are_contiguous(), "a row with gaps");
        let offset = row_offset(&self.desc, at);
        // SAFETY: `from_raw_parts` asks for initialized bytes that are not written meanwhile: `row_offset` has checked that
        // the row is the tensor's, and no thread writes it by `Src::new`'s contract.
        unsafe { std::slice::from_raw_parts(self.base.wrapping_add(offset), self.desc.row_bytes() as usize) }
    }

    /// The bytes of `count` rows of one matrix from row `at` on, if they lie one after the other; as [`Src::row`].
    pub(crate) fn rows(&self, at: RowIndex, count: u64) -> Option<&[u8]> {
        assert!(self.packed.is_none() && self.desc.rows_are_contiguous(), "rows with gaps inside");
        let (bytes, offset) = (self.desc.row_bytes(), row_offset(&self.desc, at));
        assert!(count <= self.desc.extents[1] - at[0], "rows outside their tensor");
        // SAFETY: `from_raw_parts` asks for initialized bytes that are not written meanwhile: the first row and the
        // assertion cover all rows, which lie without gaps; no thread writes them by `Src::new`'s contract.
        (self.desc.strides[1] == bytes).then(|| unsafe {
            std::slice::from_raw_parts(self.base.wrapping_add(offset), (count * bytes) as usize)
        })
    }

    /// What to prefetch before the first read: all of a small tensor, the head of each matrix of a larger one. Hardware
    /// prefetchers start only after some reads.
    pub(crate) fn beginnings(&self) -> Vec<Far> {
        let [_, _, matrices, outer] = self.desc.extents;
        let all = self.desc.bytes();
        if self.packed.is_some() || self.desc.is_empty() || matrices.saturating_mul(outer) > MAX_HEADS {
            return Vec::new();
        }
        if all <= SMALL {
            return vec![Far::at(self.base, all as usize)];
        }
        let begin = |matrix: u64| self.base.wrapping_add((matrix * self.desc.strides[2]) as usize);
        (0..matrices).map(|matrix| Far::at(begin(matrix), HEAD_BYTES)).collect()
    }

    /// Adds elements of some rows to values.
    pub(crate) fn add_to<const N: usize>(
        &self,
        isa: Isa,
        column: u64,
        rows: &[RowIndex],
        values: &mut [[f32; N]],
    ) {
        let here = self.has_floats(column, N);
        for (at, values) in rows.iter().zip(values) {
            let mut other = [0.0; N];
            let at = repeated(&self.desc, *at);
            if here {
                let from = self.base.wrapping_add(row_offset(&self.desc, at) + 4 * column as usize);
                // SAFETY: `read_unaligned` asks for initialized bytes that are not written meanwhile: `row_offset` and
                // `has_floats` have checked that they are the tensor's; no thread writes them by `Src::new`'s contract.
                other = unsafe { from.cast::<[f32; N]>().read_unaligned() };
            } else {
                self.read(isa, column, at, &mut other);
            }
            values.iter_mut().zip(other).for_each(|(value, other)| *value += other);
        }
    }

    /// Adds elements of a row, from `column` on, to values.
    pub(crate) fn add_run(&self, isa: Isa, column: u64, at: RowIndex, values: &mut [f32]) {
        let at = repeated(&self.desc, at);
        match self.floats(column, at, values.len()) {
            Some(b) => {
                let out = FloatsMut::from(values);
                on(isa, Zip { function: Add, a: out.as_floats(), b, out });
            }
            None => {
                for (column, values) in (column..).step_by(ROWS).zip(values.chunks_mut(ROWS)) {
                    let mut other = [0.0; ROWS];
                    self.read(isa, column, at, &mut other[..values.len()]);
                    values.iter_mut().zip(other).for_each(|(value, other)| *value += other);
                }
            }
        }
    }

    /// Whether the elements of rows are F32 without gaps; panics for columns outside the rows.
    fn has_floats(&self, column: u64, count: usize) -> bool {
        assert!(column + count as u64 <= self.desc.extents[0], "elements outside their row");
        self.packed.is_none() && self.desc.dtype == DType::F32 && self.desc.strides[0] == 4
    }

    /// All rows of a tensor without gaps; as [`Src::row`].
    pub(crate) fn all_rows(&self) -> &[u8] {
        assert!(self.packed.is_none() && self.desc.is_contiguous(), "rows with gaps");
        // SAFETY: `from_raw_parts` asks for initialized bytes that are not written meanwhile: a contiguous tensor's bytes
        // are all its own, and no thread writes them by `Src::new`'s contract.
        unsafe { std::slice::from_raw_parts(self.base, self.desc.bytes() as usize) }
    }

    /// The tiles of a group of rows, counted over all matrices; as [`Src::row`].
    pub(crate) fn group(&self, number: usize) -> &[u8] {
        self.groups(number..number + 1)
    }

    /// The tiles of groups that follow each other; as [`Src::group`].
    pub(crate) fn groups(&self, numbers: Range<usize>) -> &[u8] {
        let layout = self.packed.as_ref().expect("a repacked tensor");
        let bytes = layout.group_bytes();
        assert!(
            numbers.start <= numbers.end && numbers.end * bytes <= layout.bytes(),
            "groups outside their tensor"
        );
        let start = self.base.wrapping_add(numbers.start * bytes);
        // SAFETY: `from_raw_parts` asks for initialized bytes that are not written meanwhile: the assertion and `Src::new`
        // have checked that the groups are the tensor's, and no thread writes them by `Src::new`'s contract.
        unsafe { std::slice::from_raw_parts(start, numbers.len() * bytes) }
    }

    /// As `read_elements`, from tiles.
    pub(super) fn read_packed_elements(&self, column: u64, at: RowIndex, out: &mut [f32]) {
        let (each, size) = (self.desc.dtype.block_elements(), self.desc.dtype.block_bytes());
        // A row has a few bytes in every cache line of its group: a pattern that hardware prefetchers miss.
        let blocks = column / each..(column + out.len() as u64) / each;
        if blocks.end - blocks.start > 1 {
            prefetch(self.tiles(at, blocks));
        }
        let mut block = [0; MAX_BLOCK_BYTES];
        let block = &mut block[..size as usize];
        for (number, out) in (column / each..).zip(out.chunks_exact_mut(each as usize)) {
            self.read_packed_blocks(number, at, block);
            decode(self.desc.dtype, block, out);
        }
    }

    /// As `read_blocks`, from tiles.
    pub(super) fn read_packed_blocks(&self, first: u64, at: RowIndex, out: &mut [u8]) {
        let (group, place) = self.place(at);
        debug_assert!(place < ROWS);
        let layout = self.packed.as_ref().expect("a repacked tensor");
        layout.unpack(self.group(group), place, first as usize, out);
    }

    /// The tiles that hold blocks of a row.
    fn tiles(&self, at: RowIndex, blocks: Range<u64>) -> &[u8] {
        let layout = self.packed.as_ref().expect("a repacked tensor");
        layout.tiles(self.group(self.place(at).0), blocks.start as usize..blocks.end as usize)
    }

    /// The group of a row in tiles, and its place there.
    fn place(&self, at: RowIndex) -> (usize, usize) {
        let layout = self.packed.as_ref().expect("a repacked tensor");
        let [_, n1, n2, _] = self.desc.extents;
        row_offset(&self.desc, at);
        layout.place(((at[2] * n2 + at[1]) * n1 + at[0]) as usize)
    }
}

impl Scratch {
    /// Floats as the bytes that they are.
    pub(crate) fn bytes(floats: &mut [f32]) -> &mut [u8] {
        let bytes = size_of_val(floats);
        // SAFETY: `from_raw_parts_mut` asks for initialized bytes that only the result reaches: they are the floats',
        // which are borrowed for as long, and any bytes are floats.
        unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), bytes) }
    }
}

/// Floats as the bytes that they are.
pub(crate) fn as_bytes(floats: &[f32]) -> &[u8] {
    // SAFETY: `from_raw_parts` asks for initialized bytes that are not written meanwhile: they are the floats', which are
    // borrowed for as long.
    unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), size_of_val(floats)) }
}

impl Dst {
    /// Prefetches elements that will be written soon.
    pub(crate) fn prefetch(&self, column: u64, at: RowIndex, length: usize) {
        let to =
            self.base.wrapping_add(row_offset(&self.desc, at) + (column * self.desc.strides[0]) as usize);
        prefetch_to_write(to, length * self.desc.strides[0] as usize);
    }

    /// As `write_elements`, quicker for few F32 without gaps.
    pub(crate) fn write_floats(&self, column: u64, at: RowIndex, values: &[f32]) {
        if !self.has_floats(column, values.len()) {
            return self.write_elements(column, at, values);
        }
        let to = self.base.wrapping_add(row_offset(&self.desc, at) + 4 * column as usize);
        // SAFETY: `copy_nonoverlapping` asks for readable and writable bytes that do not overlap: the values are a slice of
        // other memory; `row_offset` and `has_floats` have checked that the elements are the tensor's; no other thread
        // touches them by `Dst::new`'s contract.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast(), to, size_of_val(values)) };
    }

    /// As [`Dst::write_floats`], the same columns of some rows.
    pub(crate) fn write_rows<const N: usize>(&self, column: u64, rows: &[RowIndex], values: &[[f32; N]]) {
        let here = self.has_floats(column, N);
        for (at, values) in rows.iter().zip(values) {
            if here {
                let to = self.base.wrapping_add(row_offset(&self.desc, *at) + 4 * column as usize);
                // SAFETY: `write_unaligned` asks for writable bytes: `row_offset` and `has_floats` have checked that they are
                // the tensor's; no other thread touches them by `Dst::new`'s contract.
                unsafe { to.cast::<[f32; N]>().write_unaligned(*values) };
            } else {
                self.write_elements(column, *at, values);
            }
        }
    }

    /// As [`Src::has_floats`].
    fn has_floats(&self, column: u64, count: usize) -> bool {
        assert!(column + count as u64 <= self.desc.extents[0], "elements outside their row");
        self.desc.dtype == DType::F32 && self.desc.strides[0] == 4
    }

    /// Fills row `at`, which has no gaps. In one phase, each row is filled by one thread, and read by none.
    pub(crate) fn fill_row(&self, at: RowIndex, fill: impl FnOnce(&mut [u8])) {
        self.fill_part(0, at, self.desc.row_bytes() as usize, fill);
    }

    /// As [`Dst::fill_row`], a part of a row, by its bytes.
    pub(crate) fn fill_part(&self, first: u64, at: RowIndex, bytes: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(self.desc.rows_are_contiguous(), "a row with gaps");
        assert!(first.saturating_add(bytes as u64) <= self.desc.row_bytes(), "bytes outside their row");
        let part = self.base.wrapping_add(row_offset(&self.desc, at) + first as usize);
        // SAFETY: `from_raw_parts_mut` asks for initialized bytes that only the result reaches: `row_offset` and the
        // assertions have checked that they are the tensor's; they are exclusive by `Dst::new`'s contract.
        fill(unsafe { std::slice::from_raw_parts_mut(part, bytes) });
    }
}
