//! Tensors one after the other in one buffer, and the checks that every new buffer passes.

use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, DeviceError, Slot, StoredTensor};
use orlop_graph::TensorDesc;

use crate::Error;

/// Places tensors one after the other in a buffer, and never gives anything back.
#[derive(Debug)]
pub struct LinearAllocator {
    buffer: Arc<dyn Buffer>,
    offset: u64,
}

impl LinearAllocator {
    /// An allocator over all of a buffer. If the buffer's own beginning is not aligned, the first tensor comes
    /// at the first address that is.
    pub fn new(buffer: Arc<dyn Buffer>) -> LinearAllocator {
        let offset = aligned_start(&*buffer);
        LinearAllocator { buffer, offset }
    }

    /// The place of the next tensor.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if it does not fit, [`Error::BadAlignment`] if the buffer type's alignment is not a power of two,
    /// and what the buffer's init hook refuses; the next tensor then goes where this one would have gone.
    pub fn alloc(&mut self, name: impl Into<Arc<str>>, desc: TensorDesc) -> Result<StoredTensor, Error> {
        let name = name.into();
        let buffer_type = self.buffer.buffer_type();
        check_alignment(buffer_type.name(), buffer_type.alignment())?;
        let bytes = buffer_type.alloc_bytes(&desc).checked_next_multiple_of(buffer_type.alignment());
        let end =
            bytes.and_then(|bytes| self.offset.checked_add(bytes)).filter(|end| *end <= self.buffer.bytes());
        let Some(end) = end else {
            return Err(Error::OutOfSpace {
                tensor: name.to_string(),
                needed: bytes.unwrap_or(u64::MAX),
                largest: self.available(),
            });
        };
        let slot = Slot { buffer: Arc::clone(&self.buffer), offset: self.offset };
        let tensor = StoredTensor::new(name, desc, slot)?;
        self.buffer.init_tensor(&desc, self.offset)?;
        self.offset = end;
        Ok(tensor)
    }

    /// Bytes left.
    pub fn available(&self) -> u64 {
        self.buffer.bytes().saturating_sub(self.offset)
    }
}

/// The first offset of a buffer whose address is aligned.
pub(crate) fn aligned_start(buffer: &dyn Buffer) -> u64 {
    first_aligned(buffer, buffer.buffer_type().alignment())
}

/// The first offset of a buffer whose address is a multiple of `alignment`; 0 where that is no alignment.
pub(crate) fn first_aligned(buffer: &dyn Buffer, alignment: u64) -> u64 {
    let base = buffer.host().map_or(0, |span| span.base.addr().get() as u64);
    base.wrapping_neg().checked_rem(alignment).unwrap_or(0)
}

pub(crate) fn check_alignment(arena: &str, alignment: u64) -> Result<(), Error> {
    if alignment.is_power_of_two() {
        return Ok(());
    }
    Err(Error::BadAlignment { arena: arena.to_owned(), alignment })
}

/// A new buffer that is as large, and begins as aligned, as its type promises.
pub(crate) fn new_buffer(
    buffer_type: &Arc<dyn BufferType>,
    bytes: u64,
) -> Result<Arc<dyn Buffer>, DeviceError> {
    let buffer = Arc::clone(buffer_type).allocate(bytes)?;
    if buffer.bytes() < bytes {
        return Err(DeviceError::OutOfMemory { buffer_type: buffer_type.name().to_owned(), bytes });
    }
    if aligned_start(&*buffer) != 0 {
        let address = buffer.host().map_or(0, |span| span.base.addr().get() as u64);
        return Err(DeviceError::MisalignedBase { address, alignment: buffer_type.alignment() });
    }
    Ok(buffer)
}
