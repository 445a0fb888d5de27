//! ggml's structs. The fields have equal offsets in all supported versions, which [`crate::layout`] checks before use.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;

/// Number of operands of a tensor.
pub const MAX_SRC: usize = 10;

/// Flag: set before the graph runs.
pub const FLAG_INPUT: i32 = 1;

/// Flag: read after the graph ran.
pub const FLAG_OUTPUT: i32 = 2;

/// The op of a tensor that is not computed.
pub const OP_NONE: c_int = 0;

/// Success.
pub const STATUS_SUCCESS: c_int = 0;

/// Out of memory.
pub const STATUS_ALLOC_FAILED: c_int = -2;

/// An operation failed.
pub const STATUS_FAILED: c_int = -1;

/// Usage of buffers with weights.
pub const USAGE_WEIGHTS: c_int = 1;

/// Usage of buffers for intermediate results.
pub const USAGE_COMPUTE: c_int = 2;

/// The type of devices that are the CPU.
pub const DEVICE_CPU: c_int = 0;

/// `ggml_tensor` up to its name, whose length depends on the host.
#[repr(C)]
#[derive(Debug)]
pub struct RawTensor {
    /// The element type.
    pub dtype: c_int,
    /// The buffer of its data.
    pub buffer: *mut Buffer,
    /// Extents, innermost first.
    pub ne: [i64; 4],
    /// Strides in bytes.
    pub nb: [usize; 4],
    /// The op that computes it.
    pub op: c_int,
    /// The op's parameters.
    pub op_params: [i32; 16],
    /// Bits, see [`FLAG_INPUT`].
    pub flags: i32,
    /// The op's operands; may have gaps.
    pub src: [*mut RawTensor; MAX_SRC],
    /// The root of a view.
    pub view_src: *mut RawTensor,
    /// Bytes from the root's start.
    pub view_offs: usize,
    /// Its data.
    pub data: *mut c_void,
    /// Its name, a C string.
    pub name: [c_char; 64],
}

/// `ggml_cgraph` up to its leaves.
#[repr(C)]
#[derive(Debug)]
pub struct RawGraph {
    /// Capacity of the lists.
    pub size: c_int,
    /// Number of nodes.
    pub n_nodes: c_int,
    /// Number of leaves.
    pub n_leafs: c_int,
    /// The nodes, in execution order.
    pub nodes: *mut *mut RawTensor,
    /// Unused.
    pub grads: *mut *mut RawTensor,
    /// Unused.
    pub grad_accs: *mut *mut RawTensor,
    /// The leaves.
    pub leaves: *mut *mut RawTensor,
}

/// A part of a graph: a whole `ggml_cgraph`, without leaves.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawGraphView {
    /// As in [`RawGraph`].
    pub size: c_int,
    /// Number of nodes.
    pub n_nodes: c_int,
    /// 0.
    pub n_leafs: c_int,
    /// The nodes, inside the graph's list.
    pub nodes: *mut *mut RawTensor,
    /// Null.
    pub lists: [*mut *mut RawTensor; 3],
    /// How often each tensor is read.
    pub use_counts: *mut i32,
    /// Size, marks and keys of the hash table of tensors.
    pub table: [usize; 3],
    /// The order of evaluation.
    pub order: c_int,
    /// Equal to that of an equal graph, or 0.
    pub uid: u64,
}

/// `ggml_backend_sched_eval_callback`.
pub type EvalCallback = unsafe extern "C" fn(tensor: *mut RawTensor, ask: bool, data: *mut c_void) -> bool;

/// `ggml_init_params`.
#[repr(C)]
#[derive(Debug)]
pub struct InitParams {
    /// Bytes for tensors and graphs.
    pub mem_size: usize,
    /// The memory, or null.
    pub mem_buffer: *mut c_void,
    /// Do not allocate tensor data.
    pub no_alloc: bool,
}

/// `ggml_tallocr`, the linear allocator over one buffer, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawTensorAllocator {
    /// The buffer.
    pub buffer: *mut Buffer,
    /// Its base address.
    pub base: *mut c_void,
    /// The alignment, a power of two.
    pub alignment: usize,
    /// The next free byte.
    pub offset: usize,
}

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque! {
    /// `ggml_backend_buffer`.
    Buffer
    /// `ggml_backend_buffer_type`.
    BufferType
    /// `ggml_backend`.
    Backend
    /// `ggml_context`.
    Context
    /// `ggml_backend_device`.
    DeviceHandle
    /// `ggml_backend_event`.
    Event
}

/// A readable tensor of the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TensorRef(NonNull<RawTensor>);

impl TensorRef {
    /// A tensor from the caller; `None` for null.
    ///
    /// # Safety
    /// It is null, or a tensor of a layout that was checked, which lives and is left alone by other threads for as long
    /// as the result, or what was reached through it, is used.
    pub(crate) unsafe fn new(tensor: *mut RawTensor) -> Option<TensorRef> {
        NonNull::new(tensor).map(TensorRef)
    }

    pub(crate) fn as_ptr(self) -> *mut RawTensor {
        self.0.as_ptr()
    }

    /// A short-lived reference: the host writes to tensors between two of our calls.
    fn get(&self) -> &RawTensor {
        // SAFETY: by the contract of `new` the tensor is live and not written during a call, and this reference lives no
        // longer than one of the functions below.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn data(self) -> *mut c_void {
        self.get().data
    }

    pub(crate) fn buffer(self) -> *mut Buffer {
        self.get().buffer
    }

    pub(crate) fn op(self) -> c_int {
        self.get().op
    }

    /// Element type, extents and strides.
    pub(crate) fn layout(self) -> (c_int, [i64; 4], [usize; 4]) {
        let tensor = self.get();
        (tensor.dtype, tensor.ne, tensor.nb)
    }

    pub(crate) fn flags(self) -> i32 {
        self.get().flags
    }

    pub(crate) fn view_offs(self) -> usize {
        self.get().view_offs
    }

    pub(crate) fn sources(self) -> [Option<TensorRef>; MAX_SRC] {
        // SAFETY: a tensor's operands are null or tensors that live as long as it does.
        self.get().src.map(|source| unsafe { TensorRef::new(source) })
    }

    pub(crate) fn set_source(self, slot: usize, source: TensorRef) {
        // SAFETY: by the contract of `new` the tensor is live and not used elsewhere during a call; no reference to it exists.
        unsafe { (*self.0.as_ptr()).src[slot] = source.as_ptr() };
    }

    pub(crate) fn set_strides(self, strides: [usize; 4]) {
        // SAFETY: as above.
        unsafe { (*self.0.as_ptr()).nb = strides };
    }

    pub(crate) fn view_src(self) -> Option<TensorRef> {
        // SAFETY: the root of a view is a tensor that lives as long as the view does.
        unsafe { TensorRef::new(self.get().view_src) }
    }

    /// Whether it already has data or a buffer.
    pub(crate) fn is_allocated(self) -> bool {
        !self.data().is_null() || !self.buffer().is_null()
    }

    pub(crate) fn name(self) -> String {
        let bytes = self.get().name.map(|byte| byte as u8);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// Sets its data and buffer.
    pub(crate) fn bind(self, buffer: *mut Buffer, data: *mut c_void) {
        let tensor = self.0.as_ptr();
        // SAFETY: by the contract of `new` the tensor is live and not used elsewhere during a call; no reference to it exists.
        unsafe { (*tensor).data = data };
        // SAFETY: as above.
        unsafe { (*tensor).buffer = buffer };
    }

    /// Clears its data and buffer.
    pub(crate) fn unbind(self) {
        self.bind(std::ptr::null_mut(), std::ptr::null_mut());
    }
}

impl fmt::Debug for TensorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// The nodes and leaves of a graph of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphRef<'a> {
    nodes: &'a [*mut RawTensor],
    leaves: &'a [*mut RawTensor],
}

impl<'a> GraphRef<'a> {
    /// A graph from the caller; `None` for null or a negative count.
    ///
    /// # Safety
    /// It is null, or a graph of a layout that was checked; it and its tensors live and are left alone by other
    /// threads for as long as the result, or what was reached through it, is used.
    pub(crate) unsafe fn new(graph: *const RawGraph) -> Option<GraphRef<'a>> {
        // SAFETY: `as_ref` asks for null or a live graph that is not written meanwhile: `new`'s contract.
        let graph = unsafe { graph.as_ref() }?;
        let list = |first: *mut *mut RawTensor, count: c_int| {
            let count = usize::try_from(count).ok()?;
            if count == 0 {
                return Some(&[][..]);
            }
            // SAFETY: `from_raw_parts` asks for `count` readable entries that stay as they are: a graph's lists have as many as it
            // says, and live and are left alone as long as it is, by `new`'s contract.
            (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first.cast_const(), count) })
        };
        Some(GraphRef {
            nodes: list(graph.nodes, graph.n_nodes)?,
            leaves: list(graph.leaves, graph.n_leafs)?,
        })
    }

    /// A graph of these tensors.
    ///
    /// # Safety
    /// As [`GraphRef::new`] says of a graph's tensors.
    pub(crate) unsafe fn of(nodes: &'a [*mut RawTensor], leaves: &'a [*mut RawTensor]) -> GraphRef<'a> {
        GraphRef { nodes, leaves }
    }

    pub(crate) fn node_count(self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn leaf_count(self) -> usize {
        self.leaves.len()
    }

    /// The nodes; `None` for a null entry.
    pub(crate) fn nodes(self) -> impl ExactSizeIterator<Item = Option<TensorRef>> + 'a {
        // SAFETY: a graph's tensors live as long as it does.
        self.nodes.iter().map(|node| unsafe { TensorRef::new(*node) })
    }

    /// The leaves; `None` for a null entry.
    pub(crate) fn leaves(self) -> impl ExactSizeIterator<Item = Option<TensorRef>> + 'a {
        // SAFETY: as for the nodes.
        self.leaves.iter().map(|leaf| unsafe { TensorRef::new(*leaf) })
    }
}
