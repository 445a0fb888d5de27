//! A mock ggml: contexts, tensors, graphs, and buffers of ordinary memory.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use orlop_ggml::{
    Backend, Buffer, BufferType, Context, FLAG_INPUT, FLAG_OUTPUT, InitParams, MAX_SRC, OP_NONE, RawGraph,
    RawGraphView, RawTensor, STATUS_SUCCESS,
};

/// A complete tensor.
#[repr(C)]
struct WholeTensor {
    tensor: RawTensor,
    extra: *mut c_void,
    padding: [u8; 8],
}

/// A complete graph with its lists.
#[repr(C)]
struct WholeGraph {
    graph: RawGraph,
    rest: [usize; 6],
    nodes: Vec<*mut RawTensor>,
    leaves: Vec<*mut RawTensor>,
}

#[derive(Default)]
struct HostContext {
    tensors: Vec<*mut WholeTensor>,
    graphs: Vec<*mut WholeGraph>,
    allocates: bool,
}

/// A buffer type that counts its allocations.
pub(crate) struct Kind {
    pub(crate) alignment: usize,
    pub(crate) most: usize,
    /// Sizes of the live buffers.
    pub(crate) live: Mutex<Vec<usize>>,
    /// Remaining buffer allocations; negative: no limit.
    pub(crate) willing: AtomicI64,
    /// Remaining tensor initializations; negative: no limit.
    pub(crate) binds: AtomicI64,
    pub(crate) resets: AtomicUsize,
    /// Extra bytes of the result of this op.
    pub(crate) scratch: (c_int, usize),
}

impl Kind {
    pub(crate) fn new(most: usize, alignment: usize) -> Kind {
        Kind {
            alignment,
            most,
            live: Mutex::default(),
            willing: AtomicI64::new(-1),
            binds: AtomicI64::new(-1),
            resets: AtomicUsize::new(0),
            scratch: (-1, 0),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut BufferType {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn live(&self) -> Vec<usize> {
        self.live.lock().unwrap().clone()
    }

    pub(crate) fn total(&self) -> usize {
        self.live().iter().sum()
    }
}

/// Decrements a counter; `false` if it was zero.
fn take(left: &AtomicI64) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
        0 => None,
        left => Some(left - 1),
    })
    .is_ok()
}

struct HostBuffer {
    kind: Option<&'static Kind>,
    _memory: Vec<u64>,
    base: *mut c_void,
    bytes: usize,
    usage: c_int,
    parts: Vec<*mut Buffer>,
}

const OPS: [&CStr; 16] = [
    c"NONE",
    c"VIEW",
    c"ADD",
    c"MUL",
    c"SCALE",
    c"CONCAT",
    c"PAD",
    c"MEAN",
    c"RESHAPE",
    c"MUL_MAT",
    c"CPY",
    c"SOFT_MAX",
    c"FLASH_ATTN_EXT",
    c"SQR",
    c"MUL_MAT_ID",
    c"ROPE",
];

pub(crate) fn op(name: &str) -> c_int {
    OPS.iter().position(|op| op.to_str() == Ok(name)).unwrap() as c_int
}

fn whole<'a>(context: *const Context) -> &'a mut HostContext {
    // SAFETY: contexts are made by `init` alone, and used by one thread.
    unsafe { &mut *context.cast_mut().cast::<HostContext>() }
}

pub(crate) fn at<'a>(tensor: *const RawTensor) -> &'a mut RawTensor {
    // SAFETY: tensors are made by `make` alone, live as long as their context, and are used by one thread.
    unsafe { &mut *tensor.cast_mut() }
}

fn kind(buft: *const BufferType) -> &'static Kind {
    // SAFETY: tests hand over kinds of memory alone, and keep them until the end.
    unsafe { &*buft.cast::<Kind>() }
}

fn buffer<'a>(buffer: *mut Buffer) -> &'a mut HostBuffer {
    // SAFETY: buffers are made by `give` alone, and used by one thread.
    unsafe { &mut *buffer.cast::<HostBuffer>() }
}

pub(crate) fn make(
    context: *mut Context,
    op: c_int,
    sources: &[*mut RawTensor],
    bytes: usize,
) -> *mut RawTensor {
    assert!(sources.len() <= MAX_SRC && bytes.is_multiple_of(4));
    let mut src = [null_mut(); MAX_SRC];
    src[..sources.len()].copy_from_slice(sources);
    let elements = (bytes / 4) as i64;
    let context = whole(context);
    let mut name = [0 as c_char; 64];
    for (to, from) in name.iter_mut().zip(format!("x{}", context.tensors.len()).bytes()) {
        *to = from as c_char;
    }
    let tensor = RawTensor {
        dtype: 0,
        buffer: null_mut(),
        ne: [elements, 1, 1, 1],
        nb: [4, bytes, bytes, bytes],
        op,
        op_params: [0; 16],
        flags: 0,
        src,
        view_src: null_mut(),
        view_offs: 0,
        data: null_mut(),
        name,
    };
    let made = Box::into_raw(Box::new(WholeTensor { tensor, extra: null_mut(), padding: [0; 8] }));
    context.tensors.push(made);
    made.cast()
}

pub(crate) extern "C" fn init(params: InitParams) -> *mut Context {
    Box::into_raw(Box::new(HostContext { allocates: !params.no_alloc, ..HostContext::default() })).cast()
}

pub(crate) extern "C" fn free(context: *mut Context) {
    // SAFETY: it was made by `init`, and is not used again.
    let context = unsafe { Box::from_raw(context.cast::<HostContext>()) };
    for tensor in context.tensors {
        // SAFETY: it was made by `make`, for this context alone.
        drop(unsafe { Box::from_raw(tensor) });
    }
    for graph in context.graphs {
        // SAFETY: it was made by `new_graph_custom`, for this context alone.
        drop(unsafe { Box::from_raw(graph) });
    }
}

extern "C" fn new_tensor_4d(
    context: *mut Context,
    dtype: c_int,
    a: i64,
    b: i64,
    c: i64,
    d: i64,
) -> *mut RawTensor {
    let made = make(context, OP_NONE, &[], 4 * (a * b * c * d) as usize);
    let row = 4 * a as usize;
    let tensor = at(made);
    tensor.dtype = dtype;
    tensor.ne = [a, b, c, d];
    tensor.nb = [4, row, row * b as usize, row * (b * c) as usize];
    made
}

pub(crate) extern "C" fn view_1d(
    context: *mut Context,
    of: *mut RawTensor,
    extent: i64,
    offset: usize,
) -> *mut RawTensor {
    let made = make(context, op("VIEW"), &[of], 4 * extent as usize);
    let (root, before) = match at(of).view_src.is_null() {
        true => (of, 0),
        false => (at(of).view_src, at(of).view_offs),
    };
    (at(made).view_src, at(made).view_offs) = (root, before + offset);
    made
}

extern "C" fn add(context: *mut Context, a: *mut RawTensor, b: *mut RawTensor) -> *mut RawTensor {
    let made = make(context, op("ADD"), &[a, b], nbytes(a));
    (at(made).ne, at(made).nb) = (at(a).ne, at(a).nb);
    made
}

pub(crate) extern "C" fn nbytes(tensor: *const RawTensor) -> usize {
    4 * at(tensor).ne.iter().product::<i64>() as usize
}

pub(crate) extern "C" fn new_graph_custom(context: *mut Context, size: usize, _grads: bool) -> *mut RawGraph {
    let graph = RawGraph {
        size: size as c_int,
        n_nodes: 0,
        n_leafs: 0,
        nodes: null_mut(),
        grads: null_mut(),
        grad_accs: null_mut(),
        leaves: null_mut(),
    };
    let whole_graph = WholeGraph { graph, rest: [0; 6], nodes: Vec::new(), leaves: Vec::new() };
    let made = Box::into_raw(Box::new(whole_graph));
    whole(context).graphs.push(made);
    made.cast()
}

fn graph<'a>(graph: *mut RawGraph) -> &'a mut WholeGraph {
    // SAFETY: graphs are made by `new_graph_custom` alone, and used by one thread.
    unsafe { &mut *graph.cast::<WholeGraph>() }
}

pub(crate) extern "C" fn build_forward_expand(made: *mut RawGraph, tensor: *mut RawTensor) {
    let whole = graph(made);
    visit(whole, tensor);
    whole.graph.nodes = whole.nodes.as_mut_ptr();
    whole.graph.n_nodes = whole.nodes.len() as c_int;
    whole.graph.leaves = whole.leaves.as_mut_ptr();
    whole.graph.n_leafs = whole.leaves.len() as c_int;
}

fn visit(graph: &mut WholeGraph, tensor: *mut RawTensor) {
    if tensor.is_null() || graph.nodes.contains(&tensor) || graph.leaves.contains(&tensor) {
        return;
    }
    at(tensor).src.into_iter().for_each(|source| visit(graph, source));
    match at(tensor).op {
        OP_NONE => graph.leaves.push(tensor),
        _ => graph.nodes.push(tensor),
    }
}

/// Appends a node without its dependencies.
pub(crate) fn push_node(made: *mut RawGraph, tensor: *mut RawTensor) {
    let whole = graph(made);
    whole.nodes.push(tensor);
    whole.graph.nodes = whole.nodes.as_mut_ptr();
    whole.graph.n_nodes = whole.nodes.len() as c_int;
}

pub(crate) fn nodes(made: *mut RawGraph) -> Vec<*mut RawTensor> {
    graph(made).nodes.clone()
}

pub(crate) fn leaves(made: *mut RawGraph) -> Vec<*mut RawTensor> {
    graph(made).leaves.clone()
}

fn give(kind: Option<&'static Kind>, bytes: usize) -> *mut Buffer {
    let alignment = kind.map_or(8, |kind| kind.alignment.max(8));
    let mut memory = vec![0u64; (bytes + alignment).div_ceil(8)];
    let base = memory.as_mut_ptr().cast::<u8>();
    let base = base.wrapping_add(base.align_offset(alignment)).cast();
    Box::into_raw(Box::new(HostBuffer { kind, _memory: memory, base, bytes, usage: 0, parts: Vec::new() }))
        .cast()
}

pub(crate) extern "C" fn buft_alloc_buffer(buft: *mut BufferType, bytes: usize) -> *mut Buffer {
    let kind = kind(buft);
    // As in ggml, an empty allocation always succeeds.
    if bytes > 0 && (bytes > 1 << 30 || !take(&kind.willing)) {
        return null_mut();
    }
    kind.live.lock().unwrap().push(bytes);
    give(Some(kind), bytes)
}

extern "C" fn buffer_free(freed: *mut Buffer) {
    if freed.is_null() {
        return;
    }
    // SAFETY: it was made by `give`, and is not used again.
    let freed = unsafe { Box::from_raw(freed.cast::<HostBuffer>()) };
    freed.parts.iter().for_each(|part| buffer_free(*part));
    if let Some(kind) = freed.kind {
        let mut live = kind.live.lock().unwrap();
        let at = live.iter().position(|bytes| *bytes == freed.bytes).unwrap();
        live.remove(at);
    }
}

extern "C" fn multi_buffer(buffers: *mut *mut Buffer, count: usize) -> *mut Buffer {
    let made = give(None, 0);
    // SAFETY: the caller has that many.
    buffer(made).parts = unsafe { std::slice::from_raw_parts(buffers, count) }.to_vec();
    made
}

extern "C" fn cpu_buffer_from_ptr(memory: *mut c_void, bytes: usize) -> *mut Buffer {
    let made = give(None, 0);
    (buffer(made).base, buffer(made).bytes) = (memory, bytes);
    made
}

extern "C" fn buft_get_alloc_size(buft: *mut BufferType, tensor: *const RawTensor) -> usize {
    let (op, bytes) = kind(buft).scratch;
    nbytes(tensor) + if at(tensor).op == op { bytes } else { 0 }
}

pub(crate) extern "C" fn buffer_get_base(of: *mut Buffer) -> *mut c_void {
    let of = buffer(of);
    if of.bytes == 0 { null_mut() } else { of.base }
}

pub(crate) extern "C" fn tensor_alloc(
    to: *mut Buffer,
    tensor: *mut RawTensor,
    address: *mut c_void,
) -> c_int {
    let tensor = at(tensor);
    assert!(tensor.buffer.is_null() && tensor.data.is_null() && tensor.view_src.is_null());
    let whole = buffer(to);
    let needs = whole.kind.map_or(nbytes(tensor), |kind| buft_get_alloc_size(kind.as_ptr(), tensor));
    assert!(address.addr() >= buffer_get_base(to).addr());
    assert!(address.addr() + needs <= buffer_get_base(to).addr() + whole.bytes);
    assert_eq!(address.addr() % whole.kind.map_or(1, |kind| kind.alignment), 0);
    (tensor.buffer, tensor.data) = (to, address);
    buffer_init_tensor(to, tensor)
}

extern "C" fn view_init(tensor: *mut RawTensor) -> c_int {
    let tensor = at(tensor);
    assert!(tensor.buffer.is_null());
    let root = at(tensor.view_src);
    assert!(!root.buffer.is_null() && !root.data.is_null());
    tensor.buffer = root.buffer;
    tensor.data = root.data.wrapping_byte_add(tensor.view_offs);
    buffer_init_tensor(root.buffer, tensor)
}

/// Rejects tensors outside the buffer.
extern "C" fn buffer_init_tensor(to: *mut Buffer, tensor: *mut RawTensor) -> c_int {
    let whole = buffer(to);
    let (tensor, base) = (at(tensor), buffer_get_base(to).addr());
    let needs = if tensor.view_src.is_null() { buffer_get_alloc_size(to, tensor) } else { nbytes(tensor) };
    assert!(tensor.buffer == to && tensor.data.addr() >= base);
    assert!(tensor.data.addr() + needs <= base + whole.bytes);
    if whole.kind.is_none_or(|kind| take(&kind.binds)) { STATUS_SUCCESS } else { -1 }
}

extern "C" fn tensor_overhead() -> usize {
    32 + size_of::<WholeTensor>()
}

extern "C" fn graph_overhead_custom(size: usize, _grads: bool) -> usize {
    // A prime for the table's size, as far as tests go.
    let table = if size == 1 { 2 } else { 2 * size + 1 };
    let lists = (size_of::<RawGraphView>() + 16 * size + 4 * table).next_multiple_of(8);
    32 + (lists + 8 * table + 4 * table.div_ceil(32)).next_multiple_of(16)
}

extern "C" fn set_input(tensor: *mut RawTensor) {
    at(tensor).flags |= FLAG_INPUT;
}

extern "C" fn set_output(tensor: *mut RawTensor) {
    at(tensor).flags |= FLAG_OUTPUT;
}

extern "C" fn get_name(tensor: *const RawTensor) -> *const c_char {
    (&raw const at(tensor).name).cast()
}

extern "C" fn op_name(op: c_int) -> *const c_char {
    OPS[op as usize].as_ptr()
}

extern "C" fn type_name(_dtype: c_int) -> *const c_char {
    c"f32".as_ptr()
}

extern "C" fn graph_n_nodes(made: *mut RawGraph) -> c_int {
    graph(made).graph.n_nodes
}

extern "C" fn graph_nodes(made: *mut RawGraph) -> *mut *mut RawTensor {
    graph(made).graph.nodes
}

extern "C" fn get_no_alloc(context: *mut Context) -> bool {
    !whole(context).allocates
}

extern "C" fn get_first_tensor(context: *const Context) -> *mut RawTensor {
    whole(context).tensors.first().map_or(null_mut(), |tensor| tensor.cast())
}

extern "C" fn get_next_tensor(context: *const Context, tensor: *mut RawTensor) -> *mut RawTensor {
    let tensors = &whole(context).tensors;
    let at = tensors.iter().position(|known| known.cast() == tensor).unwrap();
    tensors.get(at + 1).map_or(null_mut(), |tensor| tensor.cast())
}

extern "C" fn buft_name(_buft: *mut BufferType) -> *const c_char {
    c"dummy".as_ptr()
}

extern "C" fn buft_get_alignment(buft: *mut BufferType) -> usize {
    kind(buft).alignment
}

extern "C" fn buft_get_max_size(buft: *mut BufferType) -> usize {
    kind(buft).most
}

extern "C" fn buffer_get_size(of: *mut Buffer) -> usize {
    buffer(of).bytes
}

extern "C" fn buffer_get_alignment(of: *mut Buffer) -> usize {
    buffer(of).kind.map_or(8, |kind| kind.alignment)
}

pub(crate) extern "C" fn buffer_get_alloc_size(of: *mut Buffer, tensor: *const RawTensor) -> usize {
    buffer(of).kind.map_or(nbytes(tensor), |kind| buft_get_alloc_size(kind.as_ptr(), tensor))
}

pub(crate) extern "C" fn buffer_set_usage(of: *mut Buffer, usage: c_int) {
    buffer(of).usage = usage;
}

pub(crate) fn usage(of: *mut Buffer) -> c_int {
    buffer(of).usage
}

/// The kind of a buffer's memory.
pub(crate) fn kind_of(of: *mut Buffer) -> &'static Kind {
    buffer(of).kind.unwrap()
}

extern "C" fn buffer_reset(of: *mut Buffer) {
    if let Some(kind) = buffer(of).kind {
        kind.resets.fetch_add(1, Ordering::SeqCst);
    }
}

/// A backend is its kind of memory.
extern "C" fn default_buffer_type(backend: *mut Backend) -> *mut BufferType {
    backend.cast()
}

/// Every function by ggml's name.
pub(crate) fn symbols(name: &CStr) -> *const c_void {
    let all: &[(&CStr, *const c_void)] = &[
        (c"ggml_tensor_overhead", tensor_overhead as *const c_void),
        (c"ggml_graph_overhead_custom", graph_overhead_custom as *const c_void),
        (c"ggml_init", init as *const c_void),
        (c"ggml_free", free as *const c_void),
        (c"ggml_new_tensor_4d", new_tensor_4d as *const c_void),
        (c"ggml_view_1d", view_1d as *const c_void),
        (c"ggml_add", add as *const c_void),
        (c"ggml_set_input", set_input as *const c_void),
        (c"ggml_set_output", set_output as *const c_void),
        (c"ggml_get_name", get_name as *const c_void),
        (c"ggml_op_name", op_name as *const c_void),
        (c"ggml_type_name", type_name as *const c_void),
        (c"ggml_nbytes", nbytes as *const c_void),
        (c"ggml_new_graph_custom", new_graph_custom as *const c_void),
        (c"ggml_build_forward_expand", build_forward_expand as *const c_void),
        (c"ggml_graph_n_nodes", graph_n_nodes as *const c_void),
        (c"ggml_graph_nodes", graph_nodes as *const c_void),
        (c"ggml_get_no_alloc", get_no_alloc as *const c_void),
        (c"ggml_get_first_tensor", get_first_tensor as *const c_void),
        (c"ggml_get_next_tensor", get_next_tensor as *const c_void),
        (c"ggml_backend_buft_name", buft_name as *const c_void),
        (c"ggml_backend_buft_alloc_buffer", buft_alloc_buffer as *const c_void),
        (c"ggml_backend_buft_get_alignment", buft_get_alignment as *const c_void),
        (c"ggml_backend_buft_get_max_size", buft_get_max_size as *const c_void),
        (c"ggml_backend_buft_get_alloc_size", buft_get_alloc_size as *const c_void),
        (c"ggml_backend_buffer_free", buffer_free as *const c_void),
        (c"ggml_backend_buffer_get_base", buffer_get_base as *const c_void),
        (c"ggml_backend_buffer_get_size", buffer_get_size as *const c_void),
        (c"ggml_backend_buffer_get_alignment", buffer_get_alignment as *const c_void),
        (c"ggml_backend_buffer_get_alloc_size", buffer_get_alloc_size as *const c_void),
        (c"ggml_backend_buffer_set_usage", buffer_set_usage as *const c_void),
        (c"ggml_backend_buffer_init_tensor", buffer_init_tensor as *const c_void),
        (c"ggml_backend_buffer_reset", buffer_reset as *const c_void),
        (c"ggml_backend_multi_buffer_alloc_buffer", multi_buffer as *const c_void),
        (c"ggml_backend_cpu_buffer_from_ptr", cpu_buffer_from_ptr as *const c_void),
        (c"ggml_backend_tensor_alloc", tensor_alloc as *const c_void),
        (c"ggml_backend_view_init", view_init as *const c_void),
        (c"ggml_backend_get_default_buffer_type", default_buffer_type as *const c_void),
    ];
    all.iter().find(|(known, _)| *known == name).map_or(null(), |(_, function)| *function)
}

/// Frees a buffer, as a program would.
pub(crate) fn release(buffer: *mut Buffer) {
    buffer_free(buffer);
}

/// The parts of a buffer that is made of several.
pub(crate) fn parts(of: *mut Buffer) -> Vec<usize> {
    buffer(of).parts.iter().map(|part| buffer(*part).bytes).collect()
}
