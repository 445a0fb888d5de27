//! Parts of rows, in whole blocks: as numbers, or as the bytes that are stored.

use orlop_graph::TensorDesc;

use super::{Bounds, Dst, RowIndex, Src, decode, encode, row_offset};

/// Bytes of the buffer in which blocks with gaps between them are gathered; at least a block of every type.
const APART: usize = 512;

impl Src {
    /// Reads elements of row `at` as F32, from `column` on, as many as `out` holds. `column` begins a block, and
    /// the last block is whole.
    pub(crate) fn read_elements(&self, column: u64, at: RowIndex, out: &mut [f32]) {
        if out.is_empty() {
            return;
        }
        let BlockRange { offset, blocks, size, stride } =
            BlockRange::of_elements(&self.desc, column, at, out.len() as u64);
        if self.packed.is_some() {
            return self.read_packed_elements(column, at, out);
        }
        if blocks == 1 || stride == size {
            // SAFETY: `from_raw_parts` asks for initialized bytes that are not written meanwhile: `BlockRange` has checked that
            // these are the tensor's, and no thread writes them by `Src::new`'s contract.
            let bytes = unsafe { std::slice::from_raw_parts(self.base.wrapping_add(offset), blocks * size) };
            decode(self.desc.dtype, bytes, out);
        } else {
            // Blocks with gaps between them are gathered, some at a time.
            let elements = self.desc.dtype.block_elements();
            let mut bytes = [0; APART];
            let blocks = (bytes.len() / size) as u64;
            for (first, out) in (column / elements..)
                .step_by(blocks as usize)
                .zip(out.chunks_mut((blocks * elements) as usize))
            {
                let bytes = &mut bytes[..out.len() / elements as usize * size];
                self.read_blocks(first, at, bytes);
                decode(self.desc.dtype, bytes, out);
            }
        }
    }

    /// Reads stored blocks of row `at`, from block number `first` on, as many as `out` holds.
    pub(crate) fn read_blocks(&self, first: u64, at: RowIndex, out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        let part = BlockRange::of_bytes(&self.desc, first, at, out.len());
        if self.packed.is_some() {
            return self.read_packed_blocks(first, at, out);
        }
        let from = self.base.wrapping_add(part.offset);
        if part.blocks == 1 || part.stride == part.size {
            // SAFETY: `copy_nonoverlapping` asks for readable and writable bytes that do not overlap: `BlockRange` has checked
            // that `from` has these bytes, and no thread writes them by `Src::new`'s contract; `out` is other memory.
            unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
            return;
        }
        match part.size {
            // SAFETY: `gather` asks for readable elements at multiples of the stride: `BlockRange` has checked as many blocks as
            // `out` holds, of this size; no thread writes them by `Src::new`'s contract.
            1 => unsafe { gather::<1>(from, part.stride, out) },
            // SAFETY: as for size 1.
            2 => unsafe { gather::<2>(from, part.stride, out) },
            // SAFETY: as for size 1.
            4 => unsafe { gather::<4>(from, part.stride, out) },
            // SAFETY: as for size 1.
            8 => unsafe { gather::<8>(from, part.stride, out) },
            size => {
                for (block, out) in out.chunks_exact_mut(size).enumerate() {
                    let from = from.wrapping_add(block * part.stride);
                    // SAFETY: `copy_nonoverlapping` asks for readable and writable bytes that do not overlap: the block is
                    // one of those that `BlockRange` has checked, not written by `Src::new`'s contract; `out` is other memory.
                    unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), size) };
                }
            }
        }
    }
}

/// Reads elements of a fixed size that lie `stride` bytes apart.
///
/// # Safety
/// At each multiple of the stride, one for each element that `out` holds, lie `SIZE` readable bytes, which are not written
/// meanwhile.
unsafe fn gather<const SIZE: usize>(from: *const u8, stride: usize, out: &mut [u8]) {
    for (index, out) in out.as_chunks_mut::<SIZE>().0.iter_mut().enumerate() {
        let from = from.wrapping_add(index * stride);
        // SAFETY: `copy_nonoverlapping` asks for readable and writable bytes that do not overlap: `gather`'s contract covers
        // this element, and `out` is other memory.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), SIZE) };
    }
}

impl Dst {
    /// Writes elements of row `at` from F32, the counterpart of [`Src::read_elements`].
    pub(crate) fn write_elements(&self, column: u64, at: RowIndex, values: &[f32]) {
        if values.is_empty() {
            return;
        }
        let BlockRange { offset, blocks, size, stride } =
            BlockRange::of_elements(&self.desc, column, at, values.len() as u64);
        if blocks == 1 || stride == size {
            let to = self.base.wrapping_add(offset);
            // SAFETY: `from_raw_parts_mut` asks for initialized bytes that only the result reaches: `BlockRange` has checked that
            // these are the tensor's; they are exclusive by `Dst::new`'s contract.
            let bytes = unsafe { std::slice::from_raw_parts_mut(to, blocks * size) };
            encode(self.desc.dtype, values, bytes);
        } else {
            let elements = self.desc.dtype.block_elements();
            let mut bytes = [0; APART];
            let blocks = (bytes.len() / size) as u64;
            for (first, values) in (column / elements..)
                .step_by(blocks as usize)
                .zip(values.chunks((blocks * elements) as usize))
            {
                let bytes = &mut bytes[..values.len() / elements as usize * size];
                encode(self.desc.dtype, values, bytes);
                self.write_blocks(first, at, bytes);
            }
        }
    }

    /// Writes stored blocks of row `at`, from block number `first` on; one after the other where they share bytes.
    pub(crate) fn write_blocks(&self, first: u64, at: RowIndex, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let part = BlockRange::of_bytes(&self.desc, first, at, bytes.len());
        let to = self.base.wrapping_add(part.offset);
        if part.blocks == 1 || part.stride == part.size {
            // SAFETY: `copy_nonoverlapping` asks for readable and writable bytes that do not overlap: `BlockRange` has checked
            // that `to` has these bytes, which no other thread touches by `Dst::new`'s contract; `bytes` is other memory.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            return;
        }
        match part.size {
            // SAFETY: `scatter` asks for writable elements at multiples of the stride: `BlockRange` has checked as many blocks as
            // `bytes` holds, of this size; no other thread touches them by `Dst::new`'s contract.
            1 => unsafe { scatter::<1>(bytes, to, part.stride) },
            // SAFETY: as for size 1.
            2 => unsafe { scatter::<2>(bytes, to, part.stride) },
            // SAFETY: as for size 1.
            4 => unsafe { scatter::<4>(bytes, to, part.stride) },
            // SAFETY: as for size 1.
            8 => unsafe { scatter::<8>(bytes, to, part.stride) },
            size => {
                for (block, bytes) in bytes.chunks_exact(size).enumerate() {
                    let to = to.wrapping_add(block * part.stride);
                    // SAFETY: `copy_nonoverlapping` asks for readable and writable bytes that do not overlap: the block is
                    // one of those that `BlockRange` has checked, exclusive by `Dst::new`'s contract; `bytes` is other memory.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, size) };
                }
            }
        }
    }

    /// A part of the tensor's storage, read with other extents and strides; `None` if it ends outside.
    pub(crate) fn region(&self, offset: u64, desc: TensorDesc) -> Option<Dst> {
        let end = offset.checked_add(desc.bytes())?;
        (end <= self.desc.bytes())
            .then(|| Dst { base: self.base.wrapping_add(offset as usize), bounds: Bounds { desc } })
    }

    /// Whether the bytes from first to last element have some in common with an operand's.
    pub(crate) fn touches(&self, src: &Src) -> bool {
        let (to, from) = (self.base.addr() as u64, src.base.addr() as u64);
        let (to_end, from_end) = (to + self.desc.bytes(), from + src.desc.bytes());
        to < from_end && from < to_end && !self.desc.is_empty() && !src.desc.is_empty()
    }
}

/// Writes elements of a fixed size that lie `stride` bytes apart.
///
/// # Safety
/// At each multiple of the stride, one for each element of `bytes`, lie `SIZE` writable bytes, which no other thread touches
/// meanwhile.
unsafe fn scatter<const SIZE: usize>(bytes: &[u8], to: *mut u8, stride: usize) {
    for (index, bytes) in bytes.as_chunks::<SIZE>().0.iter().enumerate() {
        let to = to.wrapping_add(index * stride);
        // SAFETY: `copy_nonoverlapping` asks for readable and writable bytes that do not overlap: `scatter`'s contract covers
        // this element, and `bytes` is other memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, SIZE) };
    }
}

/// Where some neighbouring blocks of a row lie.
pub(super) struct BlockRange {
    /// Bytes from the tensor's beginning.
    pub(super) offset: usize,
    pub(super) blocks: usize,
    /// Bytes of a block.
    pub(super) size: usize,
    /// Bytes from one block to the next.
    pub(super) stride: usize,
}

impl BlockRange {
    pub(super) fn of_elements(desc: &TensorDesc, column: u64, at: RowIndex, elements: u64) -> BlockRange {
        let each = desc.dtype.block_elements();
        // Divisions are slow and rarely needed.
        if each == 1 {
            return BlockRange::new(desc, column, at, elements, desc.extents[0]);
        }
        assert!(column.is_multiple_of(each) && elements.is_multiple_of(each), "a part of a block");
        BlockRange::new(desc, column / each, at, elements / each, desc.extents[0] / each)
    }

    fn of_bytes(desc: &TensorDesc, first: u64, at: RowIndex, bytes: usize) -> BlockRange {
        let size = desc.dtype.block_bytes() as usize;
        assert!(bytes.is_multiple_of(size), "a part of a block");
        BlockRange::new(desc, first, at, (bytes / size) as u64, desc.extents[0] / desc.dtype.block_elements())
    }

    /// Some of the `all` blocks of a row. Panics for blocks outside it, which is a kernel's mistake.
    fn new(desc: &TensorDesc, first: u64, at: RowIndex, blocks: u64, all: u64) -> BlockRange {
        assert!(first.checked_add(blocks).is_some_and(|end| end <= all), "blocks outside their row");
        let offset = row_offset(desc, at) + (first * desc.strides[0]) as usize;
        let (size, stride) = (desc.dtype.block_bytes() as usize, desc.strides[0] as usize);
        BlockRange { offset, blocks: blocks as usize, size, stride }
    }
}

#[cfg(test)]
mod tests {
    use orlop_graph::DType;

    #[test]
    fn every_block_fits_the_memory_for_blocks_that_lie_apart() {
        assert!(DType::all().all(|dtype| dtype.block_bytes() <= super::APART as u64));
    }
}
