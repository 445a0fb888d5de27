//! How kernels reach tensor memory: typed, bounds-checked loads and stores over raw addresses.
//!
//! An accessor ([`Src`], [`Dst`], [`SharedRows`], [`Scratch`]) is an address and a description. Its methods check every
//! row, column and block against the description and panic outside it, so a kernel's mistake is never an access to other
//! memory. What they cannot check is that no other thread writes the same bytes; the constructors are therefore `unsafe`,
//! and each kernel's author vouches for that once ([`crate::task::KernelBody::new`]).
//!
//! Kernels copy a row into memory of their own and back (`parts`), or use it in place: as bytes ([`Src::row`]), as
//! vectors ([`Src::floats`], `rows`), or as repacked tiles ([`Src::groups`], `packed`).

mod packed;
mod parts;
mod rows;

pub(crate) use packed::as_bytes;

use std::ops::Deref;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use orlop_backend::{BufferType, DeviceError, MemoryLayout, Reason, Slot};
use orlop_graph::AccessKind::{self, Read, Write};
use orlop_graph::{DType, TensorDesc};

use crate::repack::PackedLayout;

/// What an accessor reaches. Accessors hand it out read-only (`Deref`): all bounds checks go by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) desc: TensorDesc,
}

/// A tensor that a kernel reads.
#[derive(Clone, Debug)]
pub(crate) struct Src {
    base: *const u8,
    bounds: Bounds,
    /// The tiles of a repacked tensor.
    packed: Option<PackedLayout>,
}

/// A tensor that a kernel writes.
#[derive(Clone, Debug)]
pub(crate) struct Dst {
    base: *mut u8,
    bounds: Bounds,
}

impl Deref for Src {
    type Target = Bounds;

    #[inline(always)]
    fn deref(&self) -> &Bounds {
        &self.bounds
    }
}

impl Deref for Dst {
    type Target = Bounds;

    #[inline(always)]
    fn deref(&self) -> &Bounds {
        &self.bounds
    }
}

/// Scratch memory: the same number of bytes for each thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    base: *mut u8,
    bytes_per_thread: usize,
}

// SAFETY: `Send` asks that another thread may use the address: `Src::new`'s contract covers uses on every thread.
unsafe impl Send for Src {}
// SAFETY: `Sync` asks that threads may use it at the same time: `Src::new`'s contract excludes writers meanwhile.
unsafe impl Sync for Src {}
// SAFETY: `Send` asks that another thread may use the address: `Dst::new`'s contract covers uses on every thread.
unsafe impl Send for Dst {}
// SAFETY: `Sync` asks that threads may use it at the same time: by `Dst::new`'s contract they write different bytes.
unsafe impl Sync for Dst {}
// SAFETY: `Send` asks that another thread may use the address: `Scratch::of_thread`'s contract says which part.
unsafe impl Send for Scratch {}
// SAFETY: `Sync` asks that threads may use it at the same time: by `Scratch::of_thread`'s contract they use different parts.
unsafe impl Sync for Scratch {}

/// A row's indices in dimensions 1, 2 and 3.
pub(crate) type RowIndex = [u64; 3];

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
    /// A tensor at a place.
    ///
    /// # Safety
    /// Whenever a method of the result, of a clone or of a view of it reads bytes, and for as long as a slice that it
    /// returned is used:
    /// - the slot's buffer is alive, and claimed for reading;
    /// - no thread writes these bytes, except through the [`Dst`] of the same step, as [`crate::task::KernelBody::new`]
    ///   allows.
    pub(crate) unsafe fn new(
        slot: &Slot,
        desc: TensorDesc,
        name: &str,
        operand: usize,
    ) -> Result<Src, DeviceError> {
        let private = slot.buffer.buffer_type().layout() == MemoryLayout::Private;
        let packed = PackedLayout::of(&desc).filter(|_| private && desc.is_contiguous());
        let bytes = match packed {
            Some(layout) => layout.bytes() as u64,
            None if private => return Err(unreachable_memory(slot, name, operand)),
            None => desc.bytes(),
        };
        Ok(Src { base: address(slot, bytes, Read, name, operand)?, bounds: Bounds { desc }, packed })
    }

    /// The same elements described otherwise, such as with longer rows; panics if that reaches further.
    pub(crate) fn viewed(&self, desc: TensorDesc) -> Src {
        assert!(self.packed.is_none() && fits(&desc, &self.desc), "a view outside its tensor");
        Src { bounds: Bounds { desc }, ..self.clone() }
    }

    /// Whether its elements are indices.
    pub(crate) fn holds_indices(&self) -> bool {
        matches!(self.desc.dtype, DType::I32 | DType::I64)
    }

    /// Whether it begins at the same address as another one.
    pub(crate) fn lies_at(&self, other: &Src) -> bool {
        self.base == other.base
    }

    /// Reads row `at` as F32, whatever its type and strides are; `out` is as long as the row.
    pub(crate) fn read_row(&self, at: RowIndex, out: &mut [f32]) {
        self.read_elements(0, at, out);
    }

    /// One element as F32.
    pub(crate) fn value(&self, column: u64, at: RowIndex) -> f32 {
        let mut out = [0.0];
        self.read_elements(column, at, &mut out);
        out[0]
    }

    /// One element of an integer tensor.
    pub(crate) fn integer(&self, column: u64, at: RowIndex) -> i64 {
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
    /// A tensor at a place.
    ///
    /// # Safety
    /// Whenever a method of the result, of a clone or of a view of it reads or writes bytes, and for as long as a slice
    /// that it lends is used:
    /// - the slot's buffer is alive, and claimed for writing;
    /// - no other thread touches these bytes, and no slice of a [`Src`] that covers them is in use.
    pub(crate) unsafe fn new(
        slot: &Slot,
        desc: TensorDesc,
        name: &str,
        operand: usize,
    ) -> Result<Dst, DeviceError> {
        Ok(Dst { base: address(slot, desc.bytes(), Write, name, operand)?, bounds: Bounds { desc } })
    }

    /// The same tensor to read from.
    pub(crate) fn as_src(&self) -> Src {
        Src { base: self.base, bounds: self.bounds, packed: None }
    }

    /// As [`Src::viewed`].
    pub(crate) fn viewed(&self, desc: TensorDesc) -> Dst {
        assert!(fits(&desc, &self.desc), "a view outside its tensor");
        Dst { bounds: Bounds { desc }, ..self.clone() }
    }

    /// Writes row `at` from F32, whatever its type and strides are; `values` is as long as the row.
    pub(crate) fn write_row(&self, at: RowIndex, values: &[f32]) {
        self.write_elements(0, at, values);
    }

    /// Writes one element of an integer tensor; the type's low bytes are kept.
    pub(crate) fn set_integer(&self, column: u64, at: RowIndex, value: i64) {
        let size = self.desc.dtype.block_bytes() as usize;
        self.write_blocks(column, at, &value.to_le_bytes()[..size]);
    }

    /// Writes one element from F32.
    pub(crate) fn set_value(&self, column: u64, at: RowIndex, value: f32) {
        self.write_elements(column, at, &[value]);
    }
}

/// Whether a view with this description stays within a tensor.
fn fits(view: &TensorDesc, tensor: &TensorDesc) -> bool {
    view.dtype == tensor.dtype && view.bytes() <= tensor.bytes()
}

/// Bytes from a tensor's beginning to a row's; panics for a row outside it, which is a kernel's mistake.
fn row_offset(desc: &TensorDesc, [i1, i2, i3]: RowIndex) -> usize {
    let [n0, n1, n2, n3] = desc.extents;
    assert!(n0 > 0 && i1 < n1 && i2 < n2 && i3 < n3, "a row outside its tensor");
    (i1 * desc.strides[1] + i2 * desc.strides[2] + i3 * desc.strides[3]) as usize
}

impl Scratch {
    /// Memory for `threads` threads at a place. Only [`Scratch::of_thread`] reaches it.
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
    /// The slot's buffer is alive and claimed for writing while the slice lives. `thread` is below the number that the
    /// scratch was made for, and is passed once at a time: no other slice of that thread's part lives.
    #[allow(clippy::mut_from_ref)] // exclusive by the contract above, not by the borrow
    pub(crate) unsafe fn of_thread(&self, thread: usize) -> &mut [f32] {
        let length = self.bytes_per_thread / size_of::<f32>();
        let part = self.base.wrapping_add(thread * self.bytes_per_thread).cast();
        // SAFETY: `from_raw_parts_mut` asks for aligned, initialized floats that only the result reaches: `new` checked the
        // base, and each thread's part is a whole number of floats; buffers are zeroed when made, and any bytes are
        // floats; `of_thread`'s contract makes the part exclusive.
        unsafe { std::slice::from_raw_parts_mut(part, length) }
    }
}

/// Rows of floats that all threads of a step share: written in one phase, read in later ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRows {
    base: *mut f32,
    rows: u64,
    length: usize,
}

// SAFETY: `Send` asks that another thread may use the address: `SharedRows::new`'s contract covers uses on every thread.
unsafe impl Send for SharedRows {}
// SAFETY: `Sync` asks that threads may use it at the same time: by that contract they fill different rows.
unsafe impl Sync for SharedRows {}

impl SharedRows {
    /// Rows at a place.
    ///
    /// # Safety
    /// Whenever a row of the result, or of a copy of it, is read or filled:
    /// - the slot's buffer is alive, and claimed for writing;
    /// - while a thread fills a row, no other thread reads or fills the same one.
    pub(crate) unsafe fn new(slot: &Slot, rows: u64, length: u64) -> Result<SharedRows, DeviceError> {
        let bytes = rows.saturating_mul(length).saturating_mul(size_of::<f32>() as u64);
        let base: *mut f32 = address(slot, bytes, Write, "shared rows", 0)?.cast();
        if !base.is_aligned() {
            let (tensor, offset, alignment) =
                ("shared rows".to_owned(), slot.offset, align_of::<f32>() as u64);
            return Err(DeviceError::MisalignedOffset { tensor, offset, alignment });
        }
        Ok(SharedRows { base, rows, length: length as usize })
    }

    /// No rows.
    pub(crate) fn none() -> SharedRows {
        SharedRows { base: std::ptr::dangling_mut(), rows: 0, length: 0 }
    }

    /// Fills a row. In one phase, each row is filled by one thread and read by none.
    pub(crate) fn fill(&self, row: u64, fill: impl FnOnce(&mut [f32])) {
        assert!(row < self.rows, "a row outside the shared ones");
        let row = self.base.wrapping_add(row as usize * self.length);
        // SAFETY: `from_raw_parts_mut` asks for aligned, initialized floats that only the result reaches: alignment and
        // bounds were checked in `new` and above, buffers are zeroed when made, and no other thread reaches the row by
        // `new`'s contract.
        fill(unsafe { std::slice::from_raw_parts_mut(row, self.length) });
    }

    /// A row that an earlier phase has filled, and that no thread fills in this one.
    pub(crate) fn row(&self, row: u64) -> &[f32] {
        assert!(row < self.rows, "a row outside the shared ones");
        let row = self.base.wrapping_add(row as usize * self.length);
        // SAFETY: `from_raw_parts` asks for aligned, initialized floats that are not written meanwhile: as in `fill`, and
        // no thread fills the row by `new`'s contract.
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
            // Through aligned memory, as tensors may begin at any byte; many at a time, for vector conversion.
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
