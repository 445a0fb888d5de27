//! Parts of rows in place, for loops that need no copy, and conversions with vector instructions.

use half::f16;
use orlop_graph::{DType, TensorDesc};

use super::parts::BlockRange;
use super::{Dst, RowIndex, Src};
use crate::isa::Isa;
use crate::vector::{Floats, FloatsMut, HalfRows, Strided, decode, encode, on};

/// Where neighbouring elements of a row lie, if there are no gaps between them: offset and bytes.
fn in_one_piece(desc: &TensorDesc, column: u64, at: RowIndex, length: usize) -> Option<(usize, usize)> {
    let BlockRange { offset, blocks, size, stride } =
        BlockRange::of_elements(desc, column, at, length as u64);
    (blocks == 1 || stride == size).then_some((offset, blocks * size))
}

impl Src {
    /// Elements of row `at` from `column` on, in place, if they are F32 without gaps. At least one.
    ///
    /// As for every read: no other thread writes them in this phase.
    pub(crate) fn floats(&self, column: u64, at: RowIndex, length: usize) -> Option<Floats<'_>> {
        if self.desc.dtype != DType::F32 || length == 0 {
            return None;
        }
        let (offset, _) = in_one_piece(&self.desc, column, at, length)?;
        let from = self.base.wrapping_add(offset).cast();
        // SAFETY: `Floats::new` asks for floats that only its user writes: `BlockRange` has checked that these are the tensor's,
        // and by `Src::new`'s contract no other thread writes them.
        Some(unsafe { Floats::new(from, length) })
    }

    /// As [`Src::floats`], through `scratch` where they cannot be used in place.
    pub(crate) fn floats_by<'a>(
        &'a self,
        isa: Isa,
        column: u64,
        at: RowIndex,
        scratch: &'a mut [f32],
    ) -> Floats<'a> {
        match self.floats(column, at, scratch.len()) {
            Some(floats) => floats,
            None => {
                self.read(isa, column, at, scratch);
                Floats::from(&*scratch)
            }
        }
    }

    /// As `read_elements`, with vector instructions where there are some for the type.
    pub(crate) fn read(&self, isa: Isa, column: u64, at: RowIndex, out: &mut [f32]) {
        if matches!(self.desc.dtype, DType::F16 | DType::Q8_0 | DType::Q4_0)
            && !out.is_empty()
            && self.packed.is_none()
            && let Some((offset, bytes)) = in_one_piece(&self.desc, column, at, out.len())
        {
            // SAFETY: `from_raw_parts` asks for initialized bytes that are not written meanwhile: `BlockRange` has checked that
            // these are the tensor's, and no thread writes them by `Src::new`'s contract.
            let bytes = unsafe { std::slice::from_raw_parts(self.base.wrapping_add(offset), bytes) };
            if decode(isa, self.desc.dtype, bytes, out) {
                return;
            }
        }
        self.read_elements(column, at, out);
    }

    /// `rows` rows, which follow `at` in the first of its dimensions, in place, if they are F16 without gaps.
    pub(crate) fn halves(&self, at: RowIndex, rows: usize) -> Option<Strided<'_, f16>> {
        let length = self.desc.extents[0] as usize;
        if self.desc.dtype != DType::F16 || self.packed.is_some() || length == 0 || rows == 0 {
            return None;
        }
        let (offset, _) = in_one_piece(&self.desc, 0, at, length)?;
        assert!(at[0] + rows as u64 <= self.desc.extents[1], "rows outside their tensor");
        let (from, distance) = (self.base.wrapping_add(offset), self.desc.strides[1] as usize);
        // SAFETY: `Strided::new` asks for readable rows that are not written meanwhile: `BlockRange` has checked the first, the
        // assertion the others; no thread writes them by `Src::new`'s contract.
        Some(unsafe { Strided::new(from, distance, (rows, length)) })
    }

    /// Reads `rows` rows, which follow `at` in the first of its dimensions, to `out`, where they are `stride` apart.
    pub(crate) fn read_rows(&self, isa: Isa, at: RowIndex, rows: usize, out: &mut [f32], stride: usize) {
        let length = self.desc.extents[0] as usize;
        if length == 0 || rows == 0 {
            return;
        }
        if let Some(halves) = self.halves(at, rows) {
            return on(isa, HalfRows::new(halves, out, stride));
        }
        for (row, out) in (at[0]..).zip(out.chunks_exact_mut(stride).take(rows)) {
            self.read(isa, 0, [row, at[1], at[2]], &mut out[..length]);
        }
    }
}

impl Dst {
    /// Elements of row `at` from `column` on, in place, if they are F32 without gaps. At least one.
    pub(crate) fn floats(&self, column: u64, at: RowIndex, length: usize) -> Option<FloatsMut<'_>> {
        if self.desc.dtype != DType::F32 || length == 0 {
            return None;
        }
        let (offset, _) = in_one_piece(&self.desc, column, at, length)?;
        let to = self.base.wrapping_add(offset).cast();
        // SAFETY: `FloatsMut::new` asks for floats that only its user touches: `BlockRange` has checked that these are the tensor's,
        // and by `Dst::new`'s contract no other thread touches them.
        Some(unsafe { FloatsMut::new(to, length) })
    }

    /// As `write_elements`, with vector instructions where there are some for the type.
    pub(crate) fn write(&self, isa: Isa, column: u64, at: RowIndex, values: &[f32]) {
        if matches!(self.desc.dtype, DType::F16 | DType::Q8_0)
            && !values.is_empty()
            && let Some((offset, bytes)) = in_one_piece(&self.desc, column, at, values.len())
        {
            // SAFETY: `from_raw_parts_mut` asks for initialized bytes that only the result reaches: `BlockRange` has checked that
            // these are the tensor's; they are exclusive by `Dst::new`'s contract.
            let bytes = unsafe { std::slice::from_raw_parts_mut(self.base.wrapping_add(offset), bytes) };
            if encode(isa, self.desc.dtype, values, bytes) {
                return;
            }
        }
        self.write_elements(column, at, values);
    }

    /// Replaces row `at` by what `work` makes of an operand's row at the same place. The row is changed in place if it is
    /// F32 without gaps, else in `scratch`, which is as long.
    pub(crate) fn change_row(
        &self,
        isa: Isa,
        src: &Src,
        at: RowIndex,
        scratch: &mut [f32],
        work: impl FnOnce(&mut [f32]),
    ) {
        let place = in_one_piece(&self.desc, 0, at, scratch.len());
        let row = place.map(|(offset, _)| self.base.wrapping_add(offset).cast::<f32>());
        match row.filter(|row| self.desc.dtype == DType::F32 && row.is_aligned()) {
            Some(row) => {
                let from = in_one_piece(&src.desc, 0, at, scratch.len());
                let from = from.map(|(offset, _)| src.base.wrapping_add(offset).cast::<f32>());
                let in_place = src.desc.dtype == DType::F32 && from == Some(row.cast_const());
                // SAFETY: `from_raw_parts_mut` asks for aligned, initialized floats that only the result reaches: the filter
                // has checked alignment and `BlockRange` the bounds; they are exclusive by `Dst::new`'s contract, and an operand
                // that is this row itself is not read below.
                let row = unsafe { std::slice::from_raw_parts_mut(row, scratch.len()) };
                if !in_place {
                    src.read(isa, 0, at, row);
                }
                work(row);
            }
            None => {
                src.read(isa, 0, at, scratch);
                work(scratch);
                self.write(isa, 0, at, scratch);
            }
        }
    }
}
