//! Allocation of all tensors of a context, and the linear allocator over one buffer that it uses.

use crate::error::Error;
use crate::host::Host;
use crate::raw::{Buffer, BufferType, Context, RawTensorAllocator, STATUS_SUCCESS, TensorRef};

/// An allocator that starts at the first aligned byte of a buffer.
pub(crate) fn allocator(host: &Host, buffer: *mut Buffer) -> RawTensorAllocator {
    let base = host.buffer_get_base(buffer);
    let alignment = host.buffer_get_alignment(buffer);
    let offset = base.addr().checked_next_multiple_of(alignment.max(1)).map_or(0, |next| next - base.addr());
    RawTensorAllocator { buffer, base, alignment, offset }
}

/// Allocates the next bytes for a tensor. On failure nothing changes.
pub(crate) fn allocate(
    host: &Host,
    allocator: &mut RawTensorAllocator,
    tensor: TensorRef,
) -> Result<(), Error> {
    let size = host.buffer_get_size(allocator.buffer);
    let bytes = host.buffer_get_alloc_size(allocator.buffer, tensor.as_ptr());
    let full = || {
        let left = size.saturating_sub(allocator.offset);
        Error::Full { tensor: tensor.name(), bytes, left, buffer: size }
    };
    let padded = bytes.checked_next_multiple_of(allocator.alignment.max(1)).ok_or_else(full)?;
    let end = allocator.offset.checked_add(padded).filter(|end| *end <= size).ok_or_else(full)?;
    let address = host.buffer_get_base(allocator.buffer).wrapping_byte_add(allocator.offset);
    bound(tensor, host.tensor_alloc(allocator.buffer, tensor.as_ptr(), address))?;
    allocator.offset = end;
    Ok(())
}

fn bound(tensor: TensorRef, status: i32) -> Result<(), Error> {
    match status {
        STATUS_SUCCESS => Ok(()),
        status => Err(Error::NotBound { tensor: tensor.name(), status }),
    }
}

/// Tensors that share a buffer.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    bytes: usize,
    tensors: std::ops::Range<usize>,
}

/// Splits a context's tensors into buffers within the type's size limit, in order, each as full as possible.
fn ranges(host: &Host, buft: *mut BufferType, tensors: &[TensorRef]) -> Vec<Range> {
    let alignment = host.buft_get_alignment(buft).max(1);
    let max = host.buft_get_max_size(buft);
    let mut ranges = Vec::new();
    let (mut bytes, mut first) = (0usize, 0);
    for (index, tensor) in tensors.iter().enumerate() {
        let needs = match tensor.data().is_null() && tensor.view_src().is_none() {
            true => host.buft_get_alloc_size(buft, tensor.as_ptr()),
            false => 0,
        };
        // On overflow the allocation fails later.
        let needs = needs.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
        let together = bytes.saturating_add(needs);
        if bytes > 0 && together > max {
            ranges.push(Range { bytes, tensors: first..index });
            (bytes, first) = (needs, index);
        } else {
            bytes = together;
        }
    }
    if bytes > 0 {
        ranges.push(Range { bytes, tensors: first..tensors.len() });
    }
    ranges
}

/// The tensors of a context with `no_alloc`.
fn tensors(host: &Host, context: *mut Context) -> Result<Vec<TensorRef>, Error> {
    if context.is_null() {
        return Err(Error::Null { what: "the context" });
    }
    if !host.get_no_alloc(context) {
        return Err(Error::ContextAllocates);
    }
    let mut tensors = Vec::new();
    let mut next = host.get_first_tensor(context);
    // SAFETY: `TensorRef::new` asks for null or a live tensor that no other thread uses: the host says that it is one of the
    // context's, which the caller keeps to itself.
    while let Some(tensor) = unsafe { TensorRef::new(next) } {
        tensors.push(tensor);
        next = host.get_next_tensor(context, next);
    }
    Ok(tensors)
}

/// A list of tensors for the host's functions.
fn pointers(tensors: &[TensorRef]) -> (Vec<*mut crate::raw::RawTensor>, i32) {
    let pointers: Vec<_> = tensors.iter().map(|tensor| tensor.as_ptr()).collect();
    let count = i32::try_from(pointers.len()).unwrap_or(i32::MAX);
    (pointers, count)
}

/// Bytes that [`allocate_all`] would allocate.
pub(crate) fn measure_all(host: &Host, context: *mut Context, buft: *mut BufferType) -> Result<usize, Error> {
    let tensors = tensors(host, context)?;
    let (mut list, count) = pointers(&tensors);
    // Some buffer types compute the size themselves.
    if count > 0
        && let Some(bytes) = host.buft_get_alloc_size_n(buft, list.as_mut_ptr(), count)
    {
        return Ok(bytes);
    }
    Ok(ranges(host, buft, &tensors).iter().fold(0, |sum, range| sum.saturating_add(range.bytes)))
}

/// One buffer for all unallocated tensors of a context; null if there are none. On failure the tensors are unchanged.
pub(crate) fn allocate_all(
    host: &Host,
    context: *mut Context,
    buft: *mut BufferType,
) -> Result<*mut Buffer, Error> {
    if host.buft_is_meta(buft) == Some(true)
        && let Some(buffer) = host.meta_alloc_ctx_tensors(context, buft)
    {
        return Ok(buffer);
    }
    let tensors = tensors(host, context)?;
    let (mut list, count) = pointers(&tensors);
    if count == 0 {
        return Ok(std::ptr::null_mut());
    }
    if let Some(buffer) = host.buft_alloc_buffer_n(buft, list.as_mut_ptr(), count) {
        return Ok(buffer);
    }
    let mut pending = PendingBuffers { host, buffers: Vec::new(), bound: Vec::new() };
    for range in ranges(host, buft, &tensors) {
        pending.fill(buft, range.bytes, &tensors[range.tensors])?;
    }
    Ok(pending.join())
}

/// Allocated buffers and bound tensors, rolled back on drop unless joined.
struct PendingBuffers<'a> {
    host: &'a Host,
    buffers: Vec<*mut Buffer>,
    bound: Vec<TensorRef>,
}

impl PendingBuffers<'_> {
    fn fill(&mut self, buft: *mut BufferType, bytes: usize, tensors: &[TensorRef]) -> Result<(), Error> {
        let buffer = self.host.buft_alloc_buffer(buft, bytes);
        if buffer.is_null() {
            let name = crate::host::text(self.host.buft_name(buft));
            return Err(Error::NoMemory { buffer: name, bytes: bytes as u64 });
        }
        self.buffers.push(buffer);
        let mut allocator = allocator(self.host, buffer);
        for tensor in tensors {
            let is_view = tensor.view_src().is_some();
            if tensor.data().is_null() && !is_view {
                self.bound.push(*tensor);
                allocate(self.host, &mut allocator, *tensor)?;
            } else if is_view && tensor.buffer().is_null() {
                // Initialize views of allocated roots only.
                let ready = |root: TensorRef| !root.buffer().is_null() && !root.data().is_null();
                if tensor.view_src().is_some_and(ready) {
                    bound(*tensor, self.host.view_init(tensor.as_ptr()))?;
                    self.bound.push(*tensor);
                }
            }
        }
        Ok(())
    }

    fn join(mut self) -> *mut Buffer {
        self.bound.clear();
        let mut buffers = std::mem::take(&mut self.buffers);
        match buffers.as_mut_slice() {
            [] => std::ptr::null_mut(),
            [one] => *one,
            many => self.host.multi_buffer(many.as_mut_ptr(), many.len()),
        }
    }
}

impl Drop for PendingBuffers<'_> {
    fn drop(&mut self) {
        self.bound.iter().for_each(|tensor| tensor.unbind());
        self.buffers.iter().for_each(|buffer| self.host.buffer_free(*buffer));
    }
}
