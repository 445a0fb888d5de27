//! Kernels' way to tensor memory. The one module that turns places in buffers into loads and stores.
//!
//! Kernels never see slices of arena memory that live longer than one call: they read a row into memory of
//! their own, and write a row from there. So a result may lie exactly on an operand (each row is read before
//! it is written), and threads may write neighbouring rows, without two live references to the same bytes.

mod packed;
mod parts;
mod rows;

pub(crate) use packed::as_bytes;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use orlop_backend::{BufferType, DeviceError, MemoryLayout, Reason, Slot};
use orlop_graph::AccessKind::{self, Read, Write};
use orlop_graph::{DType, TensorDesc};

use crate::repack::PackedLayout;

/// A tensor that a kernel reads.
#[derive(Clone, Debug)]
pub(crate) struct Src {
    base: *const u8,
    pub(crate) desc: TensorDesc,
    /// How it lies in tiles, if it does.
    packed: Option<PackedLayout>,
}

/// A tensor that a kernel writes.
#[derive(Clone, Debug)]
pub(crate) struct Dst {
    base: *mut u8,
    pub(crate) desc: TensorDesc,
}

/// Memory for threads' own use, the same number of bytes for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    base: *mut u8,
    bytes_per_thread: usize,
}

// SAFETY: these are addresses of memory that the program which made them keeps alive. Every use happens in
// `Program::run`, whose caller holds claims to that memory.
unsafe impl Send for Src {}
// SAFETY: as above.
unsafe impl Sync for Src {}
// SAFETY: as above.
unsafe impl Send for Dst {}
// SAFETY: as above.
unsafe impl Sync for Dst {}
// SAFETY: as above.
unsafe impl Send for Scratch {}
// SAFETY: as above.
unsafe impl Sync for Scratch {}

/// A row's position: indices of dimensions 1, 2 and 3.
pub(crate) type At = [u64; 3];

/// The refusal of a place that kernels cannot use.
fn unreachable_memory(slot: &Slot, name: &str, operand: usize) -> DeviceError {
    let buffer_type = slot.buffer.buffer_type().name().to_owned();
    DeviceError::Unsupported {
        device: "cpu".to_owned(),
        op: "access".to_owned(),
        tensor: name.to_owned(),
        reason: Reason::BufferType { operand, buffer_type },
    }
}

/// The host address of a place, if there is one that can be read or written.
fn address(
    slot: &Slot,
    bytes: u64,
    kind: AccessKind,
    name: &str,
    operand: usize,
) -> Result<*mut u8, DeviceError> {
    let buffer_type: &dyn BufferType = &**slot.buffer.buffer_type();
    let span = slot.buffer.host().ok_or_else(|| unreachable_memory(slot, name, operand))?;
    if slot.offset.checked_add(bytes).is_none_or(|end| end > span.bytes) {
        let (tensor, offset) = (name.to_owned(), slot.offset);
        return Err(DeviceError::OutOfBounds { tensor, offset, bytes, available: span.bytes });
    }
    if kind == Write && !span.writable && bytes > 0 {
        return Err(DeviceError::ReadOnly { buffer_type: buffer_type.name().to_owned() });
    }
    // SAFETY: `add` asks to stay within the allocation: the offset is at most the span's length, checked above.
    Ok(unsafe { span.base.as_ptr().add(slot.offset as usize) })
}

impl Src {
    /// A tensor at a place; it must stay there, and the place's buffer alive, for as long as the result is used.
    pub(crate) fn new(slot: &Slot, desc: TensorDesc, name: &str, operand: usize) -> Result<Src, DeviceError> {
        let private = slot.buffer.buffer_type().layout() == MemoryLayout::Private;
        let packed = PackedLayout::of(&desc).filter(|_| private && desc.is_contiguous());
        let bytes = match packed {
            Some(layout) => layout.bytes() as u64,
            None if private => return Err(unreachable_memory(slot, name, operand)),
            None => desc.bytes(),
        };
        Ok(Src { base: address(slot, bytes, Read, name, operand)?, desc, packed })
    }

    /// Whether its elements say where others are.
    pub(crate) fn holds_indices(&self) -> bool {
        matches!(self.desc.dtype, DType::I32 | DType::I64)
    }

    /// Whether it begins where another one does.
    pub(crate) fn lies_at(&self, other: &Src) -> bool {
        self.base == other.base
    }

    /// Reads row `at` as F32, whatever its type and strides are; `out` is as long as the row.
    pub(crate) fn read_row(&self, at: At, out: &mut [f32]) {
        self.read_elements(0, at, out);
    }

    /// One element as F32.
    pub(crate) fn value(&self, column: u64, at: At) -> f32 {
        let mut out = [0.0];
        self.read_elements(column, at, &mut out);
        out[0]
    }

    /// One element of an integer tensor.
    pub(crate) fn integer(&self, column: u64, at: At) -> i64 {
        let mut bytes = [0; 8];
        self.read_blocks(column, at, &mut bytes[..self.desc.dtype.block_bytes() as usize]);
        let [a, b, c, d, ..] = bytes;
        match self.desc.dtype {
            DType::I8 => i64::from(a as i8),
            DType::I16 => i64::from(i16::from_le_bytes([a, b])),
            DType::I32 => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => i64::from_le_bytes(bytes),
        }
    }
}

impl Dst {
    /// A tensor at a place; it must stay there, and the place's buffer alive, for as long as the result is used.
    pub(crate) fn new(slot: &Slot, desc: TensorDesc, name: &str, operand: usize) -> Result<Dst, DeviceError> {
        Ok(Dst { base: address(slot, desc.bytes(), Write, name, operand)?, desc })
    }

    /// The same tensor to read from.
    pub(crate) fn as_src(&self) -> Src {
        Src { base: self.base, desc: self.desc, packed: None }
    }

    /// Writes row `at` from F32, whatever its type and strides are; `values` is as long as the row.
    pub(crate) fn write_row(&self, at: At, values: &[f32]) {
        self.write_elements(0, at, values);
    }

    /// Writes one element of an integer tensor; the type's low bytes are kept.
    pub(crate) fn set_integer(&self, column: u64, at: At, value: i64) {
        let size = self.desc.dtype.block_bytes() as usize;
        self.write_blocks(column, at, &value.to_le_bytes()[..size]);
    }

    /// Writes one element from F32.
    pub(crate) fn set_value(&self, column: u64, at: At, value: f32) {
        self.write_elements(column, at, &[value]);
    }
}

/// Bytes from a tensor's beginning to a row's; panics for a row that is not there, which is a kernel's mistake.
fn row_offset(desc: &TensorDesc, [i1, i2, i3]: At) -> usize {
    let [n0, n1, n2, n3] = desc.extents;
    assert!(n0 > 0 && i1 < n1 && i2 < n2 && i3 < n3, "a row outside its tensor");
    (i1 * desc.strides[1] + i2 * desc.strides[2] + i3 * desc.strides[3]) as usize
}

impl Scratch {
    /// Memory for `threads` threads at a place.
    pub(crate) fn new(slot: &Slot, bytes_per_thread: u64, threads: usize) -> Result<Scratch, DeviceError> {
        let base = address(slot, bytes_per_thread.saturating_mul(threads as u64), Write, "scratch", 0)?;
        if !base.addr().is_multiple_of(align_of::<f32>()) {
            let (tensor, offset, alignment) = ("scratch".to_owned(), slot.offset, align_of::<f32>() as u64);
            return Err(DeviceError::MisalignedOffset { tensor, offset, alignment });
        }
        Ok(Scratch { base, bytes_per_thread: bytes_per_thread as usize })
    }

    /// No memory at all.
    pub(crate) fn none() -> Scratch {
        Scratch { base: std::ptr::dangling_mut::<f32>().cast(), bytes_per_thread: 0 }
    }

    /// A thread's own memory.
    ///
    /// # Safety
    /// `thread` is below the number that the scratch was made for, and no two threads pass the same at a time, nor
    /// one thread twice while the slice lives.
    #[allow(clippy::mut_from_ref)] // exclusive by the contract above, not by the borrow
    pub(crate) unsafe fn of_thread(&self, thread: usize) -> &mut [f32] {
        let length = self.bytes_per_thread / size_of::<f32>();
        let part = self.base.wrapping_add(thread * self.bytes_per_thread).cast();
        // SAFETY: `from_raw_parts_mut` asks for aligned, initialised, exclusive memory: the base was checked to be
        // aligned and each thread's part is a whole number of floats; buffers are zeroed when made, and any bytes
        // are floats; the caller passes each thread's number once.
        unsafe { std::slice::from_raw_parts_mut(part, length) }
    }
}

/// Rows of floats that all threads of a step share: written in one phase, read in later ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    base: *mut f32,
    rows: u64,
    length: usize,
}

// SAFETY: as for `Src`.
unsafe impl Send for Shared {}
// SAFETY: as for `Src`.
unsafe impl Sync for Shared {}

impl Shared {
    /// Rows at a place.
    pub(crate) fn new(slot: &Slot, rows: u64, length: u64) -> Result<Shared, DeviceError> {
        let bytes = rows.saturating_mul(length).saturating_mul(size_of::<f32>() as u64);
        let base: *mut f32 = address(slot, bytes, Write, "shared rows", 0)?.cast();
        if !base.is_aligned() {
            let (tensor, offset, alignment) =
                ("shared rows".to_owned(), slot.offset, align_of::<f32>() as u64);
            return Err(DeviceError::MisalignedOffset { tensor, offset, alignment });
        }
        Ok(Shared { base, rows, length: length as usize })
    }

    /// No rows.
    pub(crate) fn none() -> Shared {
        Shared { base: std::ptr::dangling_mut(), rows: 0, length: 0 }
    }

    /// Fills a row. In one phase, each row is filled by one thread, and read by none.
    pub(crate) fn fill(&self, row: u64, fill: impl FnOnce(&mut [f32])) {
        assert!(row < self.rows, "a row that is not there");
        let row = self.base.wrapping_add(row as usize * self.length);
        // SAFETY: the row lies inside the place, checked above and in `new`; the phase rule makes it exclusive.
        fill(unsafe { std::slice::from_raw_parts_mut(row, self.length) });
    }

    /// A row that an earlier phase has filled, and that no thread fills in this one.
    pub(crate) fn row(&self, row: u64) -> &[f32] {
        assert!(row < self.rows, "a row that is not there");
        let row = self.base.wrapping_add(row as usize * self.length);
        // SAFETY: as above; in this phase everybody only reads.
        unsafe { std::slice::from_raw_parts(row, self.length) }
    }
}

/// Bytes to F32. `supports` has accepted the type, so the codec cannot refuse it.
fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => {
            for (bytes, out) in bytes.as_chunks::<4>().0.iter().zip(out) {
                *out = f32::from_le_bytes(*bytes);
            }
        }
        DType::F16 => {
            // By way of aligned memory, as tensors may begin at any byte; many at a time, which the processor can.
            let mut halves = [f16::ZERO; 64];
            for (bytes, out) in bytes.chunks(2 * halves.len()).zip(out.chunks_mut(halves.len())) {
                let halves = &mut halves[..out.len()];
                for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *half = f16::from_le_bytes(*bytes);
                }
                halves.convert_to_f32_slice(out);
            }
        }
        DType::BF16 => {
            for (bytes, out) in bytes.as_chunks::<2>().0.iter().zip(out) {
                *out = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        _ => orlop_quant::decode(dtype, bytes, out).expect("a type that was accepted"),
    }
}

/// F32 to bytes; as [`decode`].
fn encode(dtype: DType, values: &[f32], out: &mut [u8]) {
    match dtype {
        DType::F32 => {
            for (bytes, value) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
        }
        // Integers drop the fraction and keep to their range; NaN becomes 0.
        DType::I8 => out.iter_mut().zip(values).for_each(|(byte, value)| *byte = *value as i8 as u8),
        DType::I16 => {
            for (bytes, value) in out.as_chunks_mut::<2>().0.iter_mut().zip(values) {
                *bytes = (*value as i16).to_le_bytes();
            }
        }
        DType::I32 => {
            for (bytes, value) in out.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *bytes = (*value as i32).to_le_bytes();
            }
        }
        DType::I64 => {
            for (bytes, value) in out.as_chunks_mut::<8>().0.iter_mut().zip(values) {
                *bytes = (*value as i64).to_le_bytes();
            }
        }
        _ => orlop_quant::encode(dtype, values, out).expect("a type that was accepted"),
    }
}

#[cfg(test)]
mod tests;
