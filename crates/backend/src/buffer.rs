//! Kinds of memory, and buffers of them.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use orlop_graph::TensorDesc;

use crate::{Claim, DeviceError, Gate, SharedBytes};

/// What a buffer is for. A device lists its buffer types for each role, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Values of a run: planned, reused, and dead afterwards.
    Arena,
    /// Weights and caches: kept, and a reason to run their ops where they lie.
    Weight,
}

/// How tensors lie in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryLayout {
    /// As their descriptions say; views are possible.
    Plain,
    /// In the device's own way, such as repacked weights: whole tensors or whole rows are written and read, and are read as
    /// they were written; no views.
    Private,
}

/// A kind of memory: what a plan must know before any buffer of it exists.
///
/// Two buffer types are the same exactly when they are the same object ([`same_type`]); arenas of the same
/// type are shared.
pub trait BufferType: Send + Sync + fmt::Debug {
    /// A name for people, such as `cpu` or `cuda0 pinned`.
    fn name(&self) -> &str;

    /// Every buffer and every tensor in it begins at a multiple of this power of two.
    fn alignment(&self) -> u64;

    /// Most bytes of one buffer.
    fn max_bytes(&self) -> u64 {
        u64::MAX
    }

    /// How tensors lie in buffers of this type.
    fn layout(&self) -> MemoryLayout {
        MemoryLayout::Plain
    }

    /// Bytes that a tensor takes, before rounding up to the alignment; more than its own for padding or a
    /// private layout.
    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        tensor.bytes()
    }

    /// Whether the host reaches the memory of these buffers ([`Buffer::host`] is `Some`).
    fn is_host(&self) -> bool {
        false
    }

    /// Whether its buffers lie over existing bytes ([`BufferType::over`]), such as a mapped file. Such a
    /// type allocates none.
    fn is_borrowed(&self) -> bool {
        false
    }

    /// A buffer over bytes that are only read; it keeps them alive.
    ///
    /// # Errors
    /// [`DeviceError::NotBorrowed`] for types that allocate their memory, [`DeviceError::MisalignedBase`].
    fn over(self: Arc<Self>, _bytes: SharedBytes) -> Result<Arc<dyn Buffer>, DeviceError> {
        Err(DeviceError::NotBorrowed { buffer_type: self.name().to_owned() })
    }

    /// A buffer of exactly this many bytes, which may be 0. Dropping the last handle frees it.
    ///
    /// # Errors
    /// [`DeviceError::TooLarge`] beyond [`BufferType::max_bytes`], [`DeviceError::OutOfMemory`].
    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError>;

    /// Whether buffers that this type allocates name `other` as their type: true for a type that wraps `other`.
    fn allocates(&self, other: &Arc<dyn BufferType>) -> bool {
        let _ = other;
        false
    }
}

/// Whether two handles name one buffer type.
pub fn same_type(a: &Arc<dyn BufferType>, b: &Arc<dyn BufferType>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// Device memory.
///
/// The methods that touch contents take the claim under which they do so. They are the raw layer: offsets are the buffer's,
/// and the caller has checked them against the tensor's extent; [`crate::StoredTensor`] is the checked layer.
///
/// # Safety
/// Devices use the memory that [`Buffer::host`] reports without asking again. It must be initialized and valid for as long as
/// the buffer lives, for reads and, where it says so, for writes. It is touched only under a claim to the gate that
/// [`Buffer::gate`] returns, which is the same one always: no other code writes it, or reads it while it is written. A buffer
/// that reports none has no obligations.
pub unsafe trait Buffer: Send + Sync + fmt::Debug {
    /// The type it was made by.
    fn buffer_type(&self) -> &Arc<dyn BufferType>;

    /// Its size.
    fn bytes(&self) -> u64;

    /// Its claims; also its identity.
    fn gate(&self) -> &Arc<Gate>;

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`], [`DeviceError::NotClaimed`], [`DeviceError::ReadOnly`],
    /// [`DeviceError::Lost`].
    fn write(&self, claim: &Claim, offset: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Reads bytes at an offset.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`], [`DeviceError::NotClaimed`], [`DeviceError::Lost`].
    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Sets a range to one value.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError>;

    /// Stores whole rows of a tensor in a private layout; only called for [`MemoryLayout::Private`].
    ///
    /// # Errors
    /// As [`Buffer::write`].
    fn write_rows(&self, _: &Claim, at: &PrivateRows<'_>, _: &[u8]) -> Result<(), DeviceError> {
        Err(at.refused(self.buffer_type().name()))
    }

    /// Reads whole rows of a tensor in a private layout, as they were when they were stored.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    fn read_rows(&self, _: &Claim, at: &PrivateRows<'_>, _: &mut [u8]) -> Result<(), DeviceError> {
        Err(at.refused(self.buffer_type().name()))
    }

    /// Copies bytes from another buffer without passing through the caller, if this device can; `false` if
    /// it cannot and nothing was done.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    fn pull(
        &self,
        _claims: [&Claim; 2],
        _at: u64,
        _from: &dyn Buffer,
        _range: Range<u64>,
    ) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Copies bytes to another buffer without passing through the caller, if this device can; `false` if it
    /// cannot and nothing was done.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    fn push(
        &self,
        _claims: [&Claim; 2],
        _range: Range<u64>,
        _to: &dyn Buffer,
        _at: u64,
    ) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Called when a tensor is bound here, views included.
    ///
    /// # Errors
    /// Whatever the device needs to refuse; the tensor is then not bound.
    fn init_tensor(&self, _desc: &TensorDesc, _offset: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Called before a tensor's range is given back to a free-list allocator.
    fn free_tensor(&self, _desc: &TensorDesc, _offset: u64) {}

    /// Called before a plan is bound anew: forget what [`Buffer::init_tensor`] noted.
    fn reset(&self) {}

    /// The memory itself, for buffers whose type says [`BufferType::is_host`].
    ///
    /// Devices use the pointer under a claim; the trait's `# Safety` section says what it must be.
    fn host(&self) -> Option<HostSpan> {
        None
    }

    /// For its device to recognize; `None` for buffers that are used through [`Buffer::host`] alone.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// Rows of one tensor in a private layout.
#[derive(Clone, Debug)]
pub struct PrivateRows<'a> {
    /// The tensor's name.
    pub tensor: &'a str,
    /// Its description; contiguous.
    pub desc: &'a TensorDesc,
    /// Where it begins in the buffer.
    pub offset: u64,
    /// The rows, counted over all outer dimensions.
    pub rows: Range<u64>,
}

impl PrivateRows<'_> {
    fn refused(&self, buffer_type: &str) -> DeviceError {
        DeviceError::PrivateLayout {
            tensor: self.tensor.to_owned(),
            buffer_type: buffer_type.to_owned(),
            rule: "this buffer type does not store rows",
        }
    }
}

/// Host memory of a buffer, to be used under a claim.
#[derive(Clone, Copy, Debug)]
pub struct HostSpan {
    /// First byte.
    pub base: NonNull<u8>,
    /// How many bytes.
    pub bytes: u64,
    /// Whether they may be written.
    pub writable: bool,
}

/// A place in a buffer.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The buffer; the handle keeps it alive.
    pub buffer: Arc<dyn Buffer>,
    /// Bytes from its beginning.
    pub offset: u64,
}
