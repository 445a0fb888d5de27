//! The functions of `ggml-alloc.h`.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use crate::context;
use crate::error::Error;
use crate::graph_allocator::{GgmlGraphAllocator, Ids};
use crate::raw::{
    Backend, Buffer, BufferType, Context, GraphRef, RawGraph, RawTensor, RawTensorAllocator,
    STATUS_ALLOC_FAILED, STATUS_SUCCESS, TensorRef,
};
use crate::runtime::{Interposer, Runtime, host_function, log, runtime};

/// Serves a call; an error is logged, and the result is `otherwise`.
pub(crate) fn answer<T>(otherwise: T, serve: impl FnOnce() -> Result<T, Error>) -> T {
    match catch_unwind(AssertUnwindSafe(serve)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error).and_then(|source| source.source());
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            log(format_args!("{error}{cause}"));
            otherwise
        }
        Err(_) => otherwise,
    }
}

/// The host's function of this name; `None` if there is none but ours.
///
/// # Safety
/// `F` is a function pointer of the signature that ggml's function of this name has.
pub(crate) unsafe fn forward<F>(name: &str, ours: *const c_void) -> Option<F> {
    let name = std::ffi::CString::new(name).unwrap_or_default();
    let found = host_function(runtime().symbols(), &name, ours);
    // SAFETY: `transmute_copy` asks for an address as large as an `F`, or null, which is `None`: a function pointer, by this
    // function's contract.
    unsafe { std::mem::transmute_copy::<*const c_void, Option<F>>(&found) }
}

/// A function of ggml-alloc: served here, or passed to the host's function of the same name.
macro_rules! exports {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($ours:ident $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?, else $otherwise:expr, $serve:block
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the header says: pointers are null or objects of the host's that live, and no other thread uses them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            match runtime() {
                Runtime::Interposed($ours) => answer($otherwise, || $serve),
                Runtime::PassThrough(_) => {
                    type Function = unsafe extern "C" fn($($kind),*) $(-> $result)?;
                    let ours = $name as Function as *const c_void;
                    // SAFETY: ggml's function of this name has this signature.
                    match unsafe { forward::<Function>(stringify!($name), ours) } {
                        // SAFETY: the function asks for what this one's contract, the header's, says.
                        Some(function) => unsafe { function($($argument),*) },
                        None => $otherwise,
                    }
                }
            }
        }
    )*};
}

exports! {
    /// An allocator over a buffer.
    fn ggml_tallocr_new(ours, buffer: *mut Buffer) -> RawTensorAllocator, else NOTHING, {
        if buffer.is_null() {
            return Err(Error::Null { what: "the buffer" });
        }
        Ok(context::allocator(&ours.host, buffer))
    }

    /// Allocates the next bytes of a buffer for a tensor.
    fn ggml_tallocr_alloc(ours, allocator: *mut RawTensorAllocator, tensor: *mut RawTensor) -> c_int,
    else STATUS_ALLOC_FAILED, {
        // SAFETY: `as_mut` asks for null or a live object that no other thread uses: the header's contract.
        let allocator = unsafe { allocator.as_mut() }.filter(|allocator| !allocator.buffer.is_null());
        let allocator = allocator.ok_or(Error::Null { what: "the allocator" })?;
        // SAFETY: `TensorRef::new` asks for null or a live tensor that no other thread uses: the header's contract.
        let tensor = unsafe { TensorRef::new(tensor) }.ok_or(Error::Null { what: "the tensor" })?;
        context::allocate(&ours.host, allocator, tensor)?;
        Ok(STATUS_SUCCESS)
    }

    /// A graph allocator with one buffer type.
    fn ggml_gallocr_new(ours, buft: *mut BufferType) -> *mut GgmlGraphAllocator, else null_mut(), {
        Ok(Box::into_raw(Box::new(GgmlGraphAllocator::new(ours, &[buft])?)))
    }

    /// A graph allocator with several buffer types.
    fn ggml_gallocr_new_n(ours, bufts: *mut *mut BufferType, count: c_int) -> *mut GgmlGraphAllocator,
    else null_mut(), {
        let count = usize::try_from(count).map_err(|_| Error::Null { what: "the list of buffer types" })?;
        // SAFETY: `list` asks for null or `count` entries: the header's contract.
        let bufts = unsafe { list(bufts.cast_const(), count) };
        let bufts = bufts.ok_or(Error::Null { what: "the list of buffer types" })?;
        Ok(Box::into_raw(Box::new(GgmlGraphAllocator::new(ours, bufts)?)))
    }

    /// Frees a graph allocator and its buffers.
    fn ggml_gallocr_free(_ours, allocator: *mut GgmlGraphAllocator), else (), {
        if !allocator.is_null() {
            // SAFETY: `from_raw` asks for a box of ours that is not used again: the header's contract; the functions above made it.
            drop(unsafe { Box::from_raw(allocator) });
        }
        Ok(())
    }

    /// Plans a graph and allocates its buffers.
    fn ggml_gallocr_reserve(_ours, allocator: *mut GgmlGraphAllocator, graph: *mut RawGraph) -> bool, else false, {
        // SAFETY: `both` asks for null or live objects that no other thread uses: the header's contract.
        let (allocator, graph) = unsafe { both(allocator, graph) }?;
        allocator.reserve(graph, Ids::NONE).map(|()| true)
    }

    /// `ggml_gallocr_reserve` with a buffer type for each node and leaf.
    fn ggml_gallocr_reserve_n(
        _ours,
        allocator: *mut GgmlGraphAllocator,
        graph: *mut RawGraph,
        node_buffer_ids: *const c_int,
        leaf_buffer_ids: *const c_int
    ) -> bool, else false, {
        // SAFETY: `both` asks for null or live objects that no other thread uses: the header's contract.
        let (allocator, graph) = unsafe { both(allocator, graph) }?;
        // SAFETY: `ids` asks for null or a number for each node and leaf: the header's contract.
        let ids = unsafe { ids(graph, node_buffer_ids, leaf_buffer_ids) };
        allocator.reserve(graph, ids).map(|()| true)
    }

    /// Bytes that `ggml_gallocr_reserve_n` would allocate, for each buffer type.
    fn ggml_gallocr_reserve_n_size(
        _ours,
        allocator: *mut GgmlGraphAllocator,
        graph: *mut RawGraph,
        node_buffer_ids: *const c_int,
        leaf_buffer_ids: *const c_int,
        sizes: *mut usize
    ), else (), {
        // SAFETY: `as_ref` asks for null or a live object that no other thread writes: the header's contract.
        let count = unsafe { allocator.as_ref() }.map_or(0, GgmlGraphAllocator::len);
        if sizes.is_null() {
            return Err(Error::Null { what: "the list of sizes" });
        }
        // SAFETY: `from_raw_parts_mut` asks for `count` writable numbers: the header's contract, one for each buffer type.
        let sizes = unsafe { std::slice::from_raw_parts_mut(sizes, count) };
        sizes.fill(0);
        // SAFETY: `both` asks for null or live objects that no other thread uses: the header's contract.
        let (allocator, graph) = unsafe { both(allocator, graph) }?;
        // SAFETY: `ids` asks for null or a number for each node and leaf: the header's contract.
        let ids = unsafe { ids(graph, node_buffer_ids, leaf_buffer_ids) };
        sizes.copy_from_slice(&allocator.measure(graph, ids)?);
        Ok(())
    }

    /// Assigns memory to the tensors of a graph.
    fn ggml_gallocr_alloc_graph(_ours, allocator: *mut GgmlGraphAllocator, graph: *mut RawGraph) -> bool, else false, {
        // SAFETY: `both` asks for null or live objects that no other thread uses: the header's contract.
        let (allocator, graph) = unsafe { both(allocator, graph) }?;
        allocator.allocate(graph)
    }

    /// Bytes of a buffer.
    fn ggml_gallocr_get_buffer_size(_ours, allocator: *mut GgmlGraphAllocator, id: c_int) -> usize, else 0, {
        // SAFETY: `as_ref` asks for null or a live object that no other thread writes: the header's contract.
        let allocator = unsafe { allocator.as_ref() };
        Ok(allocator.zip(usize::try_from(id).ok()).map_or(0, |(allocator, id)| allocator.buffer_bytes(id)))
    }

    /// Bytes that `ggml_backend_alloc_ctx_tensors_from_buft` would allocate.
    fn ggml_backend_alloc_ctx_tensors_from_buft_size(ours, context: *mut Context, buft: *mut BufferType) -> usize,
    else 0, {
        if buft.is_null() {
            return Err(Error::Null { what: "the buffer type" });
        }
        context::measure_all(&ours.host, context, buft)
    }

    /// A buffer for all tensors of a context.
    fn ggml_backend_alloc_ctx_tensors_from_buft(
        ours,
        context: *mut Context,
        buft: *mut BufferType
    ) -> *mut Buffer, else null_mut(), {
        all_of_context(ours, context, buft)
    }

    /// A buffer for all tensors of a context, of a backend's default type.
    fn ggml_backend_alloc_ctx_tensors(ours, context: *mut Context, backend: *mut Backend) -> *mut Buffer,
    else null_mut(), {
        if backend.is_null() {
            return Err(Error::Null { what: "the backend" });
        }
        all_of_context(ours, context, ours.host.default_buffer_type(backend))
    }

    /// Whether an op may overwrite its operands.
    fn ggml_op_can_inplace(ours, op: c_int) -> bool, else false, {
        Ok(ours.may_overwrite(op))
    }
}

const NOTHING: RawTensorAllocator =
    RawTensorAllocator { buffer: null_mut(), base: null_mut(), alignment: 1, offset: 0 };

fn all_of_context(
    ours: &Interposer,
    context: *mut Context,
    buft: *mut BufferType,
) -> Result<*mut Buffer, Error> {
    if buft.is_null() {
        return Err(Error::Null { what: "the buffer type" });
    }
    context::allocate_all(&ours.host, context, buft)
}

/// A list from the caller; `None` if it is null and not empty.
///
/// # Safety
/// It is null, or has `count` entries that do not change while the result is used.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    // SAFETY: `from_raw_parts` asks for `count` entries that stay as they are: `list`'s contract, as `first` is not null.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, count) })
}

/// # Safety
/// As [`list`], with an entry for each node and leaf.
unsafe fn ids<'a>(graph: GraphRef<'_>, nodes: *const c_int, leaves: *const c_int) -> Ids<'a> {
    // SAFETY: `list` asks for null or as many entries: `ids`' contract.
    let nodes = unsafe { list(nodes, graph.node_count()) };
    // SAFETY: `list` asks for null or as many entries: `ids`' contract.
    let leaves = unsafe { list(leaves, graph.leaf_count()) };
    Ids { leaves, nodes }
}

/// # Safety
/// Both are null or live, the allocator made here, and no other thread uses them.
unsafe fn both<'a>(
    allocator: *mut GgmlGraphAllocator,
    graph: *const RawGraph,
) -> Result<(&'a mut GgmlGraphAllocator, GraphRef<'a>), Error> {
    // SAFETY: `as_mut` asks for null or a live object that no other thread uses: `both`'s contract.
    let allocator = unsafe { allocator.as_mut() }.ok_or(Error::Null { what: "the allocator" })?;
    // SAFETY: `GraphRef::new` asks for null or a live graph that no other thread uses: `both`'s contract.
    let graph = unsafe { GraphRef::new(graph) }.ok_or(Error::Null { what: "the graph" })?;
    Ok((allocator, graph))
}
