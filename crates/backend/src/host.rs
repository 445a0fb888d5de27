//! Buffers in host memory, allocated here or by the caller.

use std::alloc::{Layout as AllocLayout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use orlop_graph::AccessKind;

use crate::large_pages::{prefer_large, rounded};
use crate::{Buffer, BufferType, Claim, DeviceError, Gate, HostSpan, SharedBytes};

/// Alignment of host arenas: a cache line, and the widest vectors there are.
pub const HOST_ALIGNMENT: u64 = 64;

/// Host memory that is allocated here, zeroed.
#[derive(Debug)]
pub struct HostBufferType {
    name: String,
    alignment: u64,
    max_bytes: u64,
}

impl HostBufferType {
    /// Host memory aligned to [`HOST_ALIGNMENT`].
    pub fn new(name: impl Into<String>) -> Arc<HostBufferType> {
        Arc::new(HostBufferType { name: name.into(), alignment: HOST_ALIGNMENT, max_bytes: u64::MAX })
    }

    /// Host memory with another alignment and a limit on the size of one buffer.
    ///
    /// # Errors
    /// [`DeviceError::BadAlignment`] unless the alignment is a power of two.
    pub fn with_limits(
        name: impl Into<String>,
        alignment: u64,
        max_bytes: u64,
    ) -> Result<Arc<HostBufferType>, DeviceError> {
        if !alignment.is_power_of_two() {
            return Err(DeviceError::BadAlignment(alignment));
        }
        Ok(Arc::new(HostBufferType { name: name.into(), alignment, max_bytes }))
    }
}

impl BufferType for HostBufferType {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        if bytes > self.max_bytes {
            let buffer_type = self.name.clone();
            return Err(DeviceError::TooLarge { buffer_type, bytes, max: self.max_bytes });
        }
        let memory = Owned::zeroed(bytes, self.alignment)
            .ok_or_else(|| DeviceError::OutOfMemory { buffer_type: self.name.clone(), bytes })?;
        let span = HostSpan { base: memory.base, bytes, writable: true };
        Ok(Arc::new(HostBuffer { buffer_type: self, span, gate: Gate::new(), keeper: Box::new(memory) }))
    }
}

/// Memory from the global allocator, aligned and zeroed.
struct Owned {
    base: NonNull<u8>,
    /// What the allocator gave, which begins at or before `base`; `None` if there are no bytes.
    allocation: Option<(NonNull<u8>, AllocLayout)>,
}

impl Owned {
    /// Asks for unaligned memory and steps to the alignment inside it: the allocator would clear memory of a
    /// large alignment by writing to all of it, where it gets plain zeroed memory from the system untouched.
    fn zeroed(bytes: u64, alignment: u64) -> Option<Owned> {
        let alignment = usize::try_from(alignment).ok()?;
        if bytes == 0 {
            let base = NonNull::new(std::ptr::without_provenance_mut(alignment))?;
            return Some(Owned { base, allocation: None });
        }
        let (bytes, alignment) = rounded(usize::try_from(bytes).ok()?, alignment)?;
        let size = bytes.checked_add(alignment - 1)?;
        let layout = AllocLayout::from_size_align(size, 1).ok()?;
        // SAFETY: `alloc_zeroed` asks for a layout of non-zero size; zero was handled above.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        prefer_large(start, size);
        let address = start.addr().get();
        // SAFETY: `add` asks that the result stays within the allocation: the step is at most
        // `alignment - 1`, by which the allocation is longer than `bytes`.
        let base = unsafe { start.add(address.next_multiple_of(alignment) - address) };
        Some(Owned { base, allocation: Some((start, layout)) })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some((start, layout)) = self.allocation {
            // SAFETY: `dealloc` asks for a block of the same allocator and its layout: `start` came from
            // `alloc_zeroed` with this very layout, and is freed only here.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }
}

// SAFETY: `Send` asks that another thread may use and free the memory: `Owned` is its only handle, and the allocator frees
// from any thread.
unsafe impl Send for Owned {}
// SAFETY: `Sync` asks that threads may share it: through a shared reference it only tells its address.
unsafe impl Sync for Owned {}

/// Memory that the caller has allocated or mapped. The type allocates no buffers.
#[derive(Debug)]
pub struct ForeignBufferType {
    name: String,
    alignment: u64,
    writable: bool,
}

impl ForeignBufferType {
    /// Memory that is only read, at any address: mapped files.
    pub fn mapped(name: impl Into<String>) -> Arc<ForeignBufferType> {
        Arc::new(ForeignBufferType { name: name.into(), alignment: 1, writable: false })
    }

    /// Memory of the caller's that may be written.
    ///
    /// # Errors
    /// [`DeviceError::BadAlignment`] unless the alignment is a power of two.
    pub fn writable(name: impl Into<String>, alignment: u64) -> Result<Arc<ForeignBufferType>, DeviceError> {
        if !alignment.is_power_of_two() {
            return Err(DeviceError::BadAlignment(alignment));
        }
        Ok(Arc::new(ForeignBufferType { name: name.into(), alignment, writable: true }))
    }

    /// A buffer over bytes that are only read, such as a mapped file; it keeps them alive.
    ///
    /// # Errors
    /// [`DeviceError::MisalignedBase`] if they do not begin at the type's alignment.
    pub fn over_bytes(self: &Arc<Self>, bytes: SharedBytes) -> Result<Arc<dyn Buffer>, DeviceError> {
        // The slice lives as long as a borrow of what the `Arc` holds, and the keeper is that `Arc`.
        let slice: &[u8] = (*bytes).as_ref();
        let span = HostSpan { base: NonNull::from(slice).cast(), bytes: slice.len() as u64, writable: false };
        self.over_span(span, Box::new(bytes))
    }

    /// A buffer over memory that the caller hands over; it is dropped with the buffer.
    ///
    /// # Errors
    /// [`DeviceError::MisalignedBase`] if it does not begin at the type's alignment.
    pub fn over_memory(self: &Arc<Self>, memory: Box<[u8]>) -> Result<Arc<dyn Buffer>, DeviceError> {
        let bytes = memory.len() as u64;
        let memory = RawBox(NonNull::from(Box::leak(memory)));
        // SAFETY: `over_raw` asks for initialized bytes, valid while the keeper lives, that no other code touches: they were a
        // box's, the keeper frees them when it is dropped, and only it points to them.
        unsafe { self.over_raw(memory.0.cast(), bytes, Box::new(memory)) }
    }

    /// A buffer over raw memory. `keeper` is dropped with the buffer and may own the memory.
    ///
    /// # Errors
    /// [`DeviceError::MisalignedBase`] if it does not begin at the type's alignment.
    ///
    /// # Safety
    /// For as long as `keeper` lives, `base` must be valid for reads of `bytes` bytes, all initialized, and, if this type is
    /// writable, for writes. No other code writes them, or reads them while the buffer is claimed for writing.
    pub unsafe fn over_raw(
        self: &Arc<Self>,
        base: NonNull<u8>,
        bytes: u64,
        keeper: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<dyn Buffer>, DeviceError> {
        self.over_span(HostSpan { base, bytes, writable: self.writable }, keeper)
    }

    fn over_span(
        self: &Arc<Self>,
        span: HostSpan,
        keeper: Box<dyn Any + Send + Sync>,
    ) -> Result<Arc<dyn Buffer>, DeviceError> {
        let address = span.base.addr().get() as u64;
        if !address.is_multiple_of(self.alignment) {
            return Err(DeviceError::MisalignedBase { address, alignment: self.alignment });
        }
        Ok(Arc::new(HostBuffer { buffer_type: Arc::clone(self) as _, span, gate: Gate::new(), keeper }))
    }
}

impl BufferType for ForeignBufferType {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn max_bytes(&self) -> u64 {
        0
    }

    fn is_host(&self) -> bool {
        true
    }

    fn is_borrowed(&self) -> bool {
        true
    }

    fn over(self: Arc<Self>, bytes: SharedBytes) -> Result<Arc<dyn Buffer>, DeviceError> {
        self.over_bytes(bytes)
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        if bytes > 0 {
            return Err(DeviceError::TooLarge { buffer_type: self.name.clone(), bytes, max: 0 });
        }
        let memory = Owned::zeroed(0, self.alignment)
            .ok_or_else(|| DeviceError::OutOfMemory { buffer_type: self.name.clone(), bytes })?;
        let span = HostSpan { base: memory.base, bytes, writable: self.writable };
        self.over_span(span, Box::new(memory))
    }
}

/// A leaked box whose contents are reached through this pointer; dropping it frees them.
struct RawBox(NonNull<[u8]>);

impl Drop for RawBox {
    fn drop(&mut self) {
        // SAFETY: `from_raw` asks for a pointer that came from a box and is turned back once: `over_memory`
        // leaked it, and it is turned back only here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the box is owned alone and bytes have no thread affinity.
unsafe impl Send for RawBox {}
// SAFETY: a shared `RawBox` offers no access to its memory.
unsafe impl Sync for RawBox {}

/// A buffer in host memory that a keeper owns.
struct HostBuffer {
    buffer_type: Arc<dyn BufferType>,
    span: HostSpan,
    gate: Arc<Gate>,
    #[allow(dead_code)] // kept for its `Drop`
    keeper: Box<dyn Any + Send + Sync>,
}

// SAFETY: `Send` asks that another thread may use the memory behind `span`: it lives as long as `keeper`, and every access
// below, or through `Buffer::host` by contract, is under a claim to `gate`.
unsafe impl Send for HostBuffer {}
// SAFETY: `Sync` asks that threads may use it at the same time: claims allow many readers or one writer.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// The first byte of a range, once claim and bounds are checked.
    fn at(
        &self,
        claim: &Claim,
        kind: AccessKind,
        offset: u64,
        bytes: u64,
    ) -> Result<NonNull<u8>, DeviceError> {
        let name = self.buffer_type.name();
        if !claim.allows(self, kind) {
            return Err(DeviceError::NotClaimed { buffer_type: name.to_owned() });
        }
        if kind == AccessKind::Write && !self.span.writable {
            return Err(DeviceError::ReadOnly { buffer_type: name.to_owned() });
        }
        if offset.checked_add(bytes).is_none_or(|end| end > self.span.bytes) {
            let tensor = name.to_owned();
            return Err(DeviceError::OutOfBounds { tensor, offset, bytes, available: self.span.bytes });
        }
        // SAFETY: `add` asks that the result stays within the allocation: `offset` is at most `span.bytes`.
        Ok(unsafe { self.span.base.add(offset as usize) })
    }
}

// SAFETY: `Buffer` asks that the memory which `host` reports lives as long as the buffer and is touched under a claim to its
// gate alone: `keeper` keeps it, and every access below is under such a claim.
unsafe impl Buffer for HostBuffer {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    fn bytes(&self) -> u64 {
        self.span.bytes
    }

    fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    fn write(&self, claim: &Claim, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let to = self.at(claim, AccessKind::Write, offset, bytes.len() as u64)?;
        // SAFETY: `copy` asks for a readable source and a writable destination of `len` bytes: the slice is one, `at` checked the
        // other, and the claim keeps other accesses away.
        unsafe { std::ptr::copy(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let from = self.at(claim, AccessKind::Read, offset, bytes.len() as u64)?;
        // SAFETY: `copy` asks for a readable source and a writable destination of `len` bytes: `at` checked one, whose claim keeps
        // writers away, and the slice is the other.
        unsafe { std::ptr::copy(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
        let bytes = range.end.saturating_sub(range.start);
        let to = self.at(claim, AccessKind::Write, range.start, bytes)?;
        // SAFETY: `write_bytes` asks for `bytes` bytes at `to` that may be written, which `at` checked.
        unsafe { to.write_bytes(value, bytes as usize) };
        Ok(())
    }

    fn pull(
        &self,
        [own, other]: [&Claim; 2],
        at: u64,
        from: &dyn Buffer,
        range: Range<u64>,
    ) -> Result<bool, DeviceError> {
        let bytes = range.end.saturating_sub(range.start);
        let to = self.at(own, AccessKind::Write, at, bytes)?;
        if Arc::ptr_eq(&self.gate, from.gate()) {
            let source = self.at(own, AccessKind::Read, range.start, bytes)?;
            // SAFETY: `copy` asks for valid source and destination of `bytes` bytes, which may overlap: `at`
            // checked both ranges.
            unsafe { std::ptr::copy(source.as_ptr(), to.as_ptr(), bytes as usize) };
            return Ok(true);
        }
        own.suspend(|| {
            // SAFETY: `from_raw_parts_mut` asks for `bytes` initialized bytes that only the result reaches: `at` checked the range,
            // the claim to write is exclusive, and it is suspended, so that `from` can reach these bytes only through the
            // slice.
            let slice = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), bytes as usize) };
            from.read(other, range.start, slice)
        })?;
        Ok(true)
    }

    fn push(
        &self,
        [own, other]: [&Claim; 2],
        range: Range<u64>,
        to: &dyn Buffer,
        at: u64,
    ) -> Result<bool, DeviceError> {
        if Arc::ptr_eq(&self.gate, to.gate()) {
            return Ok(false);
        }
        let bytes = range.end.saturating_sub(range.start);
        let from = self.at(own, AccessKind::Read, range.start, bytes)?;
        own.suspend(|| {
            // SAFETY: `from_raw_parts` asks for `bytes` initialized bytes that are not written meanwhile: `at` checked the range, the
            // claim keeps writers away, and it is suspended, so that `to` cannot use it to write here either.
            let slice = unsafe { std::slice::from_raw_parts(from.as_ptr(), bytes as usize) };
            to.write(other, at, slice)
        })?;
        Ok(true)
    }

    fn host(&self) -> Option<HostSpan> {
        Some(self.span)
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.span.bytes, self.buffer_type.name())
    }
}
