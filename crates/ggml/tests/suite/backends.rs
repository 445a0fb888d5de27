//! Mock backends: each computes with integers, some time after it is asked to, and reads only some kinds of memory.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use orlop_ggml::{
    Backend, Buffer, BufferType, Context, DEVICE_CPU, DeviceHandle, Event, GgmlScheduler, RawGraph,
    RawGraphView, RawTensor, STATUS_FAILED, STATUS_SUCCESS,
};

use crate::host::{self, Kind, at};

/// What happened, in order.
pub(crate) type Journal = Arc<Mutex<Vec<String>>>;

/// A backend with the layout of ggml's: an id, 16 functions, a device.
#[repr(C)]
pub(crate) struct MockBackend {
    guid: *const c_void,
    functions: [*const c_void; 16],
    device: *mut DeviceHandle,
    context: *mut c_void,
    name: std::ffi::CString,
    /// Its own memory.
    pub(crate) kind: Kind,
    /// Addresses of the kinds of memory that it reads.
    pub(crate) reads: Vec<usize>,
    /// Operations that it does not compute.
    pub(crate) lacks: Vec<c_int>,
    /// Operations that it takes over from the CPU.
    pub(crate) takes: Vec<c_int>,
    /// It computes only when it is waited for.
    pub(crate) is_lazy: bool,
    /// It fails.
    pub(crate) fails: bool,
    /// It has events, and copies may arrive while it still runs.
    pub(crate) has_events: bool,
    pending: Mutex<Vec<Work>>,
    /// How much work was done, and how much there was at all.
    done: AtomicUsize,
    journal: Journal,
}

/// What a backend does when it gets to it. Tensors may be gone by then, their memory is not.
enum Work {
    /// An operation, its operands and its result.
    Node(c_int, Vec<Words>, Words),
    /// Reads a result.
    Read(Words, Arc<Mutex<Vec<u32>>>),
}

/// The memory of a tensor.
#[derive(Clone, Copy)]
struct Words {
    address: *mut u32,
    count: usize,
}

impl Words {
    fn of(tensor: *const RawTensor) -> Words {
        Words { address: at(tensor).data.cast(), count: host::nbytes(tensor) / 4 }
    }

    fn get(self) -> Vec<u32> {
        // SAFETY: the words are of a buffer of the host's, which checked their end; one thread uses it.
        unsafe { std::slice::from_raw_parts(self.address, self.count) }.to_vec()
    }

    fn set(self, values: &[u32]) {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.count) }.copy_from_slice(values);
    }
}

impl MockBackend {
    /// A backend that reads its own memory, and the CPU's if `reads` has it.
    pub(crate) fn new(name: &str, journal: &Journal) -> Box<MockBackend> {
        let mut made = Box::new(MockBackend {
            guid: c"id".as_ptr().cast(),
            functions: [std::ptr::null(); 16],
            // The last one of a scheduler is the CPU.
            device: (if name == "CPU" { 1 } else { 2 }) as *mut DeviceHandle,
            context: null_mut(),
            name: std::ffi::CString::new(name).unwrap(),
            kind: Kind::new(usize::MAX, 32),
            reads: Vec::new(),
            lacks: Vec::new(),
            takes: Vec::new(),
            is_lazy: name != "CPU",
            fails: false,
            has_events: false,
            pending: Mutex::default(),
            done: AtomicUsize::new(0),
            journal: journal.clone(),
        });
        let own = made.kind.as_ptr().addr();
        made.reads.push(own);
        made
    }

    /// Gives it events.
    pub(crate) fn with_events(&mut self) {
        self.has_events = true;
        self.device = 3 as *mut DeviceHandle;
    }

    /// Sets the function that reorders nodes.
    pub(crate) fn set_optimizer(&mut self, function: extern "C" fn(*mut Backend, *mut RawGraphView)) {
        self.functions[15] = function as *const c_void;
    }

    /// Makes its layout unknown.
    pub(crate) fn make_strange(&mut self) {
        self.guid = std::ptr::null();
    }

    pub(crate) fn as_ptr(&self) -> *mut Backend {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn note(&self, what: String) {
        self.journal.lock().unwrap().push(what);
    }

    fn finish(&self) {
        self.finish_to(usize::MAX);
    }

    /// Does the work that was queued up to this number.
    fn finish_to(&self, number: usize) {
        let mut pending = self.pending.lock().unwrap();
        let count = number.saturating_sub(self.done.load(Ordering::SeqCst)).min(pending.len());
        for work in pending.drain(..count) {
            match work {
                Work::Node(op, operands, to) => {
                    let operands: Vec<Vec<u32>> = operands.into_iter().map(Words::get).collect();
                    to.set(&result(op, &operands, to.count).unwrap());
                }
                Work::Read(from, to) => *to.lock().unwrap() = from.get(),
            }
        }
        self.done.fetch_add(count, Ordering::SeqCst);
    }

    /// Queues a node.
    fn push(&self, node: *mut RawTensor) {
        if is_alias(at(node).op) {
            return;
        }
        for source in sources(node) {
            let kind = host::kind_of(at(source).buffer).as_ptr().addr();
            assert!(self.reads.contains(&kind), "{:?} reads foreign memory", self.name);
        }
        assert!(!self.lacks.contains(&at(node).op), "a backend lacks {}", at(node).op);
        let operands = sources(node).into_iter().map(|source| Words::of(source)).collect();
        self.pending.lock().unwrap().push(Work::Node(at(node).op, operands, Words::of(node)));
    }

    /// Reads a tensor when the backend gets to it.
    pub(crate) fn read_later(&self, tensor: *mut RawTensor) -> Arc<Mutex<Vec<u32>>> {
        let to = Arc::new(Mutex::new(Vec::new()));
        self.pending.lock().unwrap().push(Work::Read(Words::of(tensor), to.clone()));
        to
    }

    /// Work that is queued.
    pub(crate) fn waiting(&self) -> usize {
        self.pending.lock().unwrap().len()
    }
}

fn backend<'a>(backend: *mut Backend) -> &'a MockBackend {
    // SAFETY: backends are boxes of the tests that outlive their schedulers.
    unsafe { &*backend.cast::<MockBackend>() }
}

pub(crate) fn sources(node: *mut RawTensor) -> Vec<*mut RawTensor> {
    at(node).src.into_iter().filter(|source| !source.is_null()).collect()
}

fn is_alias(op: c_int) -> bool {
    ["NONE", "VIEW", "RESHAPE"].map(host::op).contains(&op)
}

/// The result of an operation; `None` if nothing is computed.
pub(crate) fn result(op: c_int, sources: &[Vec<u32>], count: usize) -> Option<Vec<u32>> {
    if is_alias(op) {
        return None;
    }
    let value = |index: usize| {
        let terms =
            sources.iter().zip(3u32..).map(|(source, by)| source[index % source.len()].wrapping_mul(by));
        terms.fold(op as u32, u32::wrapping_add)
    };
    Some((0..count).map(value).collect())
}

pub(crate) fn values(tensor: *mut RawTensor) -> Vec<u32> {
    Words::of(tensor).get()
}

pub(crate) fn set_values(tensor: *mut RawTensor, values: &[u32]) {
    Words::of(tensor).set(values);
}

/// Memory of a backend for tensors that are there before the graph, such as weights.
pub(crate) fn hold(tensors: &[*mut RawTensor], kind: &Kind, usage: c_int) -> *mut Buffer {
    let padded = |tensor: &*mut RawTensor| host::nbytes(*tensor).next_multiple_of(32);
    let buffer = host::buft_alloc_buffer(kind.as_ptr(), tensors.iter().map(padded).sum());
    host::buffer_set_usage(buffer, usage);
    let mut address = host::buffer_get_base(buffer);
    for tensor in tensors {
        host::tensor_alloc(buffer, *tensor, address);
        address = address.wrapping_byte_add(padded(tensor));
    }
    buffer
}

extern "C" fn dup_tensor(context: *mut Context, tensor: *const RawTensor) -> *mut RawTensor {
    let made = host::make(context, 0, &[], host::nbytes(tensor));
    (at(made).ne, at(made).nb, at(made).dtype) = (at(tensor).ne, at(tensor).nb, at(tensor).dtype);
    made
}

extern "C" fn view_tensor(context: *mut Context, of: *mut RawTensor) -> *mut RawTensor {
    let made = host::view_1d(context, of, (host::nbytes(of) / 4) as i64, 0);
    (at(made).op, at(made).src[0]) = (0, null_mut());
    (at(made).ne, at(made).nb) = (at(of).ne, at(of).nb);
    made
}

extern "C" fn set_name(tensor: *mut RawTensor, name: *const c_char) -> *mut RawTensor {
    // SAFETY: the library passes a terminated string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    at(tensor).name = [0; 64];
    for (to, from) in at(tensor).name.iter_mut().zip(name.iter().take(63)) {
        *to = *from as c_char;
    }
    tensor
}

extern "C" fn graph_view(graph: *mut RawGraph, start: c_int, end: c_int) -> RawGraphView {
    // SAFETY: a graph with at least `end` nodes, which the library keeps.
    let nodes = unsafe { (*graph).nodes };
    RawGraphView {
        size: 0,
        n_nodes: end - start,
        n_leafs: 0,
        nodes: nodes.wrapping_add(start as usize),
        lists: [null_mut(); 3],
        use_counts: null_mut(),
        table: [0; 3],
        order: 0,
        uid: 0,
    }
}

extern "C" fn graph_next_uid() -> u64 {
    7
}

extern "C" fn backend_name(of: *mut Backend) -> *const c_char {
    backend(of).name.as_ptr()
}

extern "C" fn backend_guid(_of: *mut Backend) -> *const c_void {
    c"id".as_ptr().cast()
}

extern "C" fn backend_device(of: *mut Backend) -> *mut DeviceHandle {
    backend(of).device
}

extern "C" fn device_type(device: *mut DeviceHandle) -> c_int {
    if device.addr() == 1 { DEVICE_CPU } else { 1 }
}

extern "C" fn supports_op(of: *mut Backend, tensor: *const RawTensor) -> bool {
    !backend(of).lacks.contains(&at(tensor).op)
}

extern "C" fn supports_buft(of: *mut Backend, kind: *mut BufferType) -> bool {
    backend(of).reads.contains(&kind.addr())
}

extern "C" fn offload_op(of: *mut Backend, tensor: *const RawTensor) -> bool {
    backend(of).takes.contains(&at(tensor).op)
}

extern "C" fn graph_compute_async(of: *mut Backend, graph: *mut RawGraphView) -> c_int {
    let of = backend(of);
    if of.fails {
        return STATUS_FAILED;
    }
    // SAFETY: the library passes a view of a graph that lives.
    let graph = unsafe { &*graph };
    assert!(graph.n_nodes > 0);
    // SAFETY: as above: it has as many nodes as it says.
    let nodes = unsafe { std::slice::from_raw_parts(graph.nodes, graph.n_nodes as usize) };
    of.note(format!("{} computes {}", of.name.to_str().unwrap(), nodes.len()));
    nodes.iter().for_each(|node| of.push(*node));
    if !of.is_lazy {
        of.finish();
    }
    STATUS_SUCCESS
}

extern "C" fn synchronize(of: *mut Backend) {
    backend(of).finish();
}

fn name(tensor: *const RawTensor) -> String {
    let name = at(tensor).name.map(|byte| byte as u8);
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

/// The journals of copies, by the kind of memory that they go to.
static JOURNALS: Mutex<Option<HashMap<usize, Journal>>> = Mutex::new(None);

/// Notes copies to a backend's memory in its journal.
pub(crate) fn watch(of: &MockBackend) {
    let mut journals = JOURNALS.lock().unwrap();
    journals.get_or_insert_default().insert(of.kind.as_ptr().addr(), of.journal.clone());
}

extern "C" fn tensor_copy(from: *mut RawTensor, to: *mut RawTensor) {
    let kind = host::kind_of(at(to).buffer).as_ptr().addr();
    if let Some(journal) = JOURNALS.lock().unwrap().as_ref().and_then(|journals| journals.get(&kind)) {
        journal.lock().unwrap().push(format!("copy {} of {}", host::nbytes(from), name(to)));
    }
    set_values(to, &values(from));
}

extern "C" fn tensor_copy_async(
    source: *mut Backend,
    destination: *mut Backend,
    from: *const RawTensor,
    to: *mut RawTensor,
) {
    backend(source).finish();
    if !backend(destination).has_events {
        backend(destination).finish();
    }
    tensor_copy(from.cast_mut(), to);
}

extern "C" fn tensor_get_async(
    of: *mut Backend,
    tensor: *const RawTensor,
    data: *mut c_void,
    offset: usize,
    bytes: usize,
) {
    backend(of).finish();
    let from = at(tensor).data.wrapping_byte_add(offset).cast::<u8>();
    // SAFETY: the library asks for bytes of a tensor that has memory, and has room for them.
    unsafe { std::ptr::copy_nonoverlapping(from, data.cast::<u8>(), bytes) };
}

extern "C" fn tensor_set_async(
    of: *mut Backend,
    tensor: *mut RawTensor,
    data: *const c_void,
    offset: usize,
    bytes: usize,
) {
    let of = backend(of);
    of.finish();
    of.note(format!("part {offset}+{bytes} of {}", name(tensor)));
    assert!(offset + bytes <= host::nbytes(tensor));
    let to = at(tensor).data.wrapping_byte_add(offset).cast::<u8>();
    // SAFETY: the library passes bytes of a weight that has memory; they end inside the tensor.
    unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), to, bytes) };
}

/// A point in a backend's queue.
struct MockEvent(Mutex<Option<(*const MockBackend, usize)>>);

fn event<'a>(of: *mut Event) -> &'a MockEvent {
    // SAFETY: events are made by `event_new`, and freed with their scheduler.
    unsafe { &*of.cast::<MockEvent>() }
}

/// Devices with events are 3.
extern "C" fn event_new(device: *mut DeviceHandle) -> *mut Event {
    match device.addr() {
        3 => Box::into_raw(Box::new(MockEvent(Mutex::new(None)))).cast(),
        _ => null_mut(),
    }
}

extern "C" fn event_free(of: *mut Event) {
    // SAFETY: it was made by `event_new`, and is not used again.
    drop(unsafe { Box::from_raw(of.cast::<MockEvent>()) });
}

extern "C" fn event_record(of: *mut Event, on: *mut Backend) {
    let on = backend(on);
    let number = on.done.load(Ordering::SeqCst) + on.waiting();
    *event(of).0.lock().unwrap() = Some((on, number));
}

extern "C" fn event_synchronize(of: *mut Event) {
    if let Some((on, number)) = *event(of).0.lock().unwrap() {
        // SAFETY: backends outlive the schedulers over them.
        unsafe { &*on }.finish_to(number);
    }
}

extern "C" fn event_wait(_waits: *mut Backend, of: *mut Event) {
    event_synchronize(of);
}

extern "C" fn buffer_type(of: *mut Buffer) -> *mut BufferType {
    host::kind_of(of).as_ptr()
}

extern "C" fn buffer_usage(of: *mut Buffer) -> c_int {
    host::usage(of)
}

extern "C" fn buffer_is_host(_of: *mut Buffer) -> bool {
    true
}

/// The host's own scheduler, which says no more than that it was asked.
extern "C" fn sched_new(
    _backends: *mut *mut Backend,
    _bufts: *mut *mut BufferType,
    _count: c_int,
    _size: usize,
    _parallel: bool,
    _offload: bool,
) -> *mut GgmlScheduler {
    std::ptr::dangling_mut()
}

extern "C" fn sched_get_n_splits(_scheduler: *mut GgmlScheduler) -> c_int {
    99
}

/// Every function by ggml's name.
pub(crate) fn symbols(name: &CStr) -> *const c_void {
    match name.to_str().unwrap() {
        "ggml_dup_tensor" => dup_tensor as *const c_void,
        "ggml_view_tensor" => view_tensor as *const c_void,
        "ggml_set_name" => set_name as *const c_void,
        "ggml_graph_view" => graph_view as *const c_void,
        "ggml_graph_next_uid" => graph_next_uid as *const c_void,
        "ggml_backend_name" => backend_name as *const c_void,
        "ggml_backend_guid" => backend_guid as *const c_void,
        "ggml_backend_get_device" => backend_device as *const c_void,
        "ggml_backend_dev_type" => device_type as *const c_void,
        "ggml_backend_supports_op" => supports_op as *const c_void,
        "ggml_backend_supports_buft" => supports_buft as *const c_void,
        "ggml_backend_offload_op" => offload_op as *const c_void,
        "ggml_backend_graph_compute_async" => graph_compute_async as *const c_void,
        "ggml_backend_synchronize" => synchronize as *const c_void,
        "ggml_backend_tensor_copy" => tensor_copy as *const c_void,
        "ggml_backend_tensor_copy_async" => tensor_copy_async as *const c_void,
        "ggml_backend_tensor_get_async" => tensor_get_async as *const c_void,
        "ggml_backend_tensor_set_async" => tensor_set_async as *const c_void,
        "ggml_backend_event_new" => event_new as *const c_void,
        "ggml_backend_event_free" => event_free as *const c_void,
        "ggml_backend_event_record" => event_record as *const c_void,
        "ggml_backend_event_synchronize" => event_synchronize as *const c_void,
        "ggml_backend_event_wait" => event_wait as *const c_void,
        "ggml_backend_buffer_get_type" => buffer_type as *const c_void,
        "ggml_backend_buffer_get_usage" => buffer_usage as *const c_void,
        "ggml_backend_buffer_is_host" => buffer_is_host as *const c_void,
        "ggml_backend_sched_new" => sched_new as *const c_void,
        "ggml_backend_sched_get_n_splits" => sched_get_n_splits as *const c_void,
        _ => host::symbols(name),
    }
}
