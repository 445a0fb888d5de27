//! Checked access to tensors in buffers.

use std::ops::Range;
use std::sync::Arc;

use orlop_graph::{AccessKind, DType, Element, TensorDesc};

use crate::{Claim, DeviceError, MemoryLayout, PrivateRows, Slot};

/// A tensor that lies in a buffer: the checked way to its contents.
///
/// Every access checks its bounds against the tensor, claims the buffer for as long as it takes, and either
/// does all it was asked for or nothing.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    name: Arc<str>,
    desc: TensorDesc,
    slot: Slot,
}

/// Byte ranges of equal length at equal distances, for two-dimensional access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Offset of the first in the tensor.
    pub offset: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// How many.
    pub count: u64,
    /// From the beginning of one to the next, in the tensor.
    pub stride: u64,
}

impl Pieces {
    /// Bytes from the first piece's beginning to the last one's end, if they fit 64 bits.
    fn span(&self) -> Option<u64> {
        match self.count {
            0 => Some(0),
            count => (count - 1).checked_mul(self.stride)?.checked_add(self.bytes),
        }
    }

    /// Pieces that have bytes: without any, a count of any size is nothing to do.
    fn to_move(self) -> Range<u64> {
        0..if self.bytes == 0 { 0 } else { self.count }
    }
}

impl StoredTensor {
    /// A tensor at a place.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if it does not fit there, [`DeviceError::MisalignedOffset`] if a tensor of a
    /// private layout begins off the type's alignment, [`DeviceError::PrivateLayout`] if it has gaps there.
    pub fn new(name: impl Into<Arc<str>>, desc: TensorDesc, slot: Slot) -> Result<StoredTensor, DeviceError> {
        let name = name.into();
        let buffer_type = slot.buffer.buffer_type();
        let private = buffer_type.layout() == MemoryLayout::Private;
        let bytes = if private { buffer_type.alloc_bytes(&desc) } else { desc.bytes() };
        let available = slot.buffer.bytes();
        if slot.offset.checked_add(bytes).is_none_or(|end| end > available) {
            let tensor = name.to_string();
            return Err(DeviceError::OutOfBounds { tensor, offset: slot.offset, bytes, available });
        }
        if private && !desc.is_contiguous() {
            return Err(DeviceError::PrivateLayout {
                tensor: name.to_string(),
                buffer_type: buffer_type.name().to_owned(),
                rule: "views are not possible",
            });
        }
        if private && !slot.offset.is_multiple_of(buffer_type.alignment()) {
            return Err(DeviceError::MisalignedOffset {
                tensor: name.to_string(),
                offset: slot.offset,
                alignment: buffer_type.alignment(),
            });
        }
        Ok(StoredTensor { name, desc, slot })
    }

    /// Part of this tensor, read with another description.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if it ends outside, [`DeviceError::PrivateLayout`] for anything but the whole of a
    /// tensor in a private layout.
    pub fn view(
        &self,
        name: impl Into<Arc<str>>,
        desc: TensorDesc,
        offset: u64,
    ) -> Result<StoredTensor, DeviceError> {
        if offset != 0 || desc != self.desc {
            self.refuse_private("views are not possible")?;
        }
        self.check(offset, Some(desc.bytes()))?;
        let slot = Slot { offset: self.slot.offset + offset, buffer: Arc::clone(&self.slot.buffer) };
        StoredTensor::new(name, desc, slot)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Element type, extents, strides.
    pub fn desc(&self) -> &TensorDesc {
        &self.desc
    }

    /// Where it lies.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Writes bytes at an offset of the tensor.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`], [`DeviceError::Busy`], [`DeviceError::ReadOnly`],
    /// [`DeviceError::PrivateLayout`].
    pub fn set(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        self.check(offset, Some(length))?;
        let rows = self.private_rows(offset, length)?;
        let claim = Claim::take(&*self.slot.buffer, AccessKind::Write)?;
        match rows {
            Some(rows) => self.slot.buffer.write_rows(&claim, &self.rows(rows), bytes),
            None => self.slot.buffer.write(&claim, self.slot.offset + offset, bytes),
        }
    }

    /// Reads bytes at an offset of the tensor.
    ///
    /// # Errors
    /// As [`StoredTensor::set`].
    pub fn get(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        self.check(offset, Some(length))?;
        let rows = self.private_rows(offset, length)?;
        let claim = Claim::take(&*self.slot.buffer, AccessKind::Read)?;
        match rows {
            Some(rows) => self.slot.buffer.read_rows(&claim, &self.rows(rows), bytes),
            None => self.slot.buffer.read(&claim, self.slot.offset + offset, bytes),
        }
    }

    /// Writes the whole tensor.
    ///
    /// # Errors
    /// [`DeviceError::WrongType`], [`DeviceError::WrongLength`], and as [`StoredTensor::set`].
    pub fn set_values<T: Element>(&self, values: &[T]) -> Result<(), DeviceError> {
        self.check_type(T::DTYPE)?;
        let bytes = T::to_bytes(values);
        let (expected, given) = (self.desc.bytes(), bytes.len() as u64);
        if given != expected {
            return Err(DeviceError::WrongLength { tensor: self.name.to_string(), expected, given });
        }
        self.set(0, &bytes)
    }

    /// Reads the whole tensor.
    ///
    /// # Errors
    /// [`DeviceError::WrongType`], and as [`StoredTensor::set`].
    pub fn get_values<T: Element>(&self) -> Result<Vec<T>, DeviceError> {
        self.check_type(T::DTYPE)?;
        let mut bytes = vec![0; self.desc.bytes() as usize];
        self.get(0, &mut bytes)?;
        Ok(T::from_bytes(&bytes))
    }

    /// [`StoredTensor::set_values`] of F32.
    ///
    /// # Errors
    /// As there.
    pub fn set_f32(&self, values: &[f32]) -> Result<(), DeviceError> {
        self.set_values(values)
    }

    /// [`StoredTensor::get_values`] of F32.
    ///
    /// # Errors
    /// As there.
    pub fn get_f32(&self) -> Result<Vec<f32>, DeviceError> {
        self.get_values()
    }

    fn check_type(&self, given: DType) -> Result<(), DeviceError> {
        let expected = self.desc.dtype;
        if given == expected {
            return Ok(());
        }
        Err(DeviceError::WrongType { tensor: self.name.to_string(), expected, given })
    }

    /// Sets bytes at an offset of the tensor to one value.
    ///
    /// # Errors
    /// As [`StoredTensor::set`]; a private layout only takes what [`StoredTensor::set`] takes.
    pub fn memset(&self, offset: u64, bytes: u64, value: u8) -> Result<(), DeviceError> {
        self.check(offset, Some(bytes))?;
        self.refuse_private("it can only be set by rows")?;
        let claim = Claim::take(&*self.slot.buffer, AccessKind::Write)?;
        let start = self.slot.offset + offset;
        self.slot.buffer.fill(&claim, start..start + bytes, value)
    }

    /// Writes pieces at equal distances, from host memory where they lie `data_stride` apart.
    ///
    /// # Errors
    /// As [`StoredTensor::set`], and [`DeviceError::WrongLength`] if the host memory is too short.
    pub fn set_2d(&self, pieces: Pieces, data: &[u8], data_stride: u64) -> Result<(), DeviceError> {
        self.check_pieces(&pieces, data.len() as u64, data_stride)?;
        let claim = Claim::take(&*self.slot.buffer, AccessKind::Write)?;
        for index in pieces.to_move() {
            let from = (index * data_stride) as usize;
            let piece = &data[from..from + pieces.bytes as usize];
            let at = self.slot.offset + pieces.offset + index * pieces.stride;
            self.slot.buffer.write(&claim, at, piece)?;
        }
        Ok(())
    }

    /// Reads pieces at equal distances into host memory where they lie `data_stride` apart.
    ///
    /// # Errors
    /// As [`StoredTensor::set_2d`].
    pub fn get_2d(&self, pieces: Pieces, data: &mut [u8], data_stride: u64) -> Result<(), DeviceError> {
        self.check_pieces(&pieces, data.len() as u64, data_stride)?;
        let claim = Claim::take(&*self.slot.buffer, AccessKind::Read)?;
        for index in pieces.to_move() {
            let to = (index * data_stride) as usize;
            let piece = &mut data[to..to + pieces.bytes as usize];
            let at = self.slot.offset + pieces.offset + index * pieces.stride;
            self.slot.buffer.read(&claim, at, piece)?;
        }
        Ok(())
    }

    /// Where bytes of the tensor lie in its buffer, for devices that move them by themselves.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`], [`DeviceError::PrivateLayout`].
    pub fn place(&self, offset: u64, bytes: u64) -> Result<Range<u64>, DeviceError> {
        self.check(offset, Some(bytes))?;
        self.refuse_private("its bytes have no places")?;
        let start = self.slot.offset + offset;
        Ok(start..start + bytes)
    }

    pub(crate) fn check(&self, offset: u64, bytes: Option<u64>) -> Result<(), DeviceError> {
        let available = self.desc.bytes();
        match bytes.and_then(|bytes| offset.checked_add(bytes)) {
            Some(end) if end <= available => Ok(()),
            _ => Err(DeviceError::OutOfBounds {
                tensor: self.name.to_string(),
                offset,
                bytes: bytes.unwrap_or(u64::MAX),
                available,
            }),
        }
    }

    fn check_pieces(&self, pieces: &Pieces, given: u64, data_stride: u64) -> Result<(), DeviceError> {
        self.check(pieces.offset, pieces.span())?;
        self.refuse_private("it cannot be reached in pieces")?;
        let needed = Pieces { stride: data_stride, ..*pieces }.span();
        if needed.is_none_or(|needed| needed > given) {
            return Err(DeviceError::WrongLength {
                tensor: self.name.to_string(),
                expected: needed.unwrap_or(u64::MAX),
                given,
            });
        }
        Ok(())
    }

    fn is_private(&self) -> bool {
        self.slot.buffer.buffer_type().layout() == MemoryLayout::Private
    }

    pub(crate) fn refuse_private(&self, rule: &'static str) -> Result<(), DeviceError> {
        if !self.is_private() {
            return Ok(());
        }
        let buffer_type = self.slot.buffer.buffer_type().name().to_owned();
        Err(DeviceError::PrivateLayout { tensor: self.name.to_string(), buffer_type, rule })
    }

    fn private_rows(&self, offset: u64, bytes: u64) -> Result<Option<Range<u64>>, DeviceError> {
        if !self.is_private() {
            return Ok(None);
        }
        let row = self.desc.row_bytes().max(1);
        if !offset.is_multiple_of(row) || !bytes.is_multiple_of(row) {
            self.refuse_private("only whole rows can be set and read")?;
        }
        Ok(Some(offset / row..(offset + bytes) / row))
    }

    fn rows(&self, rows: Range<u64>) -> PrivateRows<'_> {
        PrivateRows { tensor: &self.name, desc: &self.desc, offset: self.slot.offset, rows }
    }
}
