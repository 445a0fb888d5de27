//! All tensors of a context, one after the other, and the allocator over one buffer that this takes.

use crate::error::Error;
use crate::host::Host;
use crate::raw::{Buffer, BufferType, Context, RawTensorAllocator, STATUS_SUCCESS, TensorRef};

/// An allocator that begins at the first aligned byte of a buffer.
pub(crate) fn allocator(host: &Host, buffer: *mut Buffer) -> RawTensorAllocator {
    let base = host.buffer_get_base(buffer);
    let alignment = host.buffer_get_alignment(buffer);
    let offset = base.addr().checked_next_multiple_of(alignment.max(1)).map_or(0, |next| next - base.addr());
    RawTensorAllocator { buffer, base, alignment, offset }
}

/// Gives a tensor the next bytes. Where they do not suffice, nothing changes.
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

/// Cuts a context's tensors into buffers that a type can make: in order, each as full as can be.
fn ranges(host: &Host, buft: *mut BufferType, tensors: &[TensorRef]) -> Vec<Range> {
    let alignment = host.buft_get_alignment(buft).max(1);
    let most = host.buft_get_max_size(buft);
    let mut ranges = Vec::new();
    let (mut bytes, mut first) = (0usize, 0);
    for (index, tensor) in tensors.iter().enumerate() {
        let needs = match tensor.data().is_null() && tensor.view_src().is_none() {
            true => host.buft_get_alloc_size(buft, tensor.as_ptr()),
            false => 0,
        };
        // What 64 bits do not hold, no buffer type gives.
        let needs = needs.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
        let together = bytes.saturating_add(needs);
        if bytes > 0 && together > most {
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

/// The tensors of a context that leaves allocation to us.
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

/// What the host's buffer types take as a list of tensors.
fn pointers(tensors: &[TensorRef]) -> (Vec<*mut crate::raw::RawTensor>, i32) {
    let pointers: Vec<_> = tensors.iter().map(|tensor| tensor.as_ptr()).collect();
    let count = i32::try_from(pointers.len()).unwrap_or(i32::MAX);
    (pointers, count)
}

/// Bytes that [`allocate_all`] would take.
pub(crate) fn measure_all(host: &Host, context: *mut Context, buft: *mut BufferType) -> Result<usize, Error> {
    let tensors = tensors(host, context)?;
    let (mut list, count) = pointers(&tensors);
    // Some buffer types count in their own way.
    if count > 0
        && let Some(bytes) = host.buft_get_alloc_size_n(buft, list.as_mut_ptr(), count)
    {
        return Ok(bytes);
    }
    Ok(ranges(host, buft, &tensors).iter().fold(0, |sum, range| sum.saturating_add(range.bytes)))
}

/// One buffer for all tensors of a context that have none; null if there are none. Where that fails, the tensors are as
/// they were.
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
    let mut made = Made { host, buffers: Vec::new(), bound: Vec::new() };
    for range in ranges(host, buft, &tensors) {
        made.fill(buft, range.bytes, &tensors[range.tensors])?;
    }
    Ok(made.join())
}

/// Buffers and tensors that are undone unless all goes well.
struct Made<'a> {
    host: &'a Host,
    buffers: Vec<*mut Buffer>,
    bound: Vec<TensorRef>,
}

impl Made<'_> {
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
                // A view may have bytes already, of a tensor that has a buffer; a root may have none.
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

impl Drop for Made<'_> {
    fn drop(&mut self) {
        self.bound.iter().for_each(|tensor| tensor.unbind());
        self.buffers.iter().for_each(|buffer| self.host.buffer_free(*buffer));
    }
}
