//! A host with an unknown layout: its own functions serve all calls.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{dangling_mut, null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_ggml::{
    BufferType, GgmlGraphAllocator, RawGraph, ggml_gallocr_alloc_graph, ggml_gallocr_free,
    ggml_gallocr_get_buffer_size, ggml_gallocr_new, ggml_gallocr_reserve, ggml_op_can_inplace, use_symbols,
};

static CALLS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn tensor_overhead() -> usize {
    32 + 352
}

extern "C" fn graph_overhead() -> usize {
    32 + 144
}

extern "C" fn never() {
    unreachable!("nothing else of a stranger's is called");
}

extern "C" fn new(_buft: *mut BufferType) -> *mut GgmlGraphAllocator {
    CALLS.fetch_add(1, Ordering::SeqCst);
    dangling_mut()
}

extern "C" fn free(allocator: *mut GgmlGraphAllocator) {
    assert_eq!(allocator, dangling_mut());
    CALLS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn alloc_graph(_allocator: *mut GgmlGraphAllocator, _graph: *mut RawGraph) -> bool {
    CALLS.fetch_add(1, Ordering::SeqCst);
    true
}

extern "C" fn buffer_size(_allocator: *mut GgmlGraphAllocator, id: c_int) -> usize {
    1000 + id as usize
}

fn symbols(name: &CStr) -> *const c_void {
    match name.to_str().unwrap_or_default() {
        "ggml_tensor_overhead" => tensor_overhead as *const c_void,
        "ggml_graph_overhead_custom" => graph_overhead as *const c_void,
        "ggml_gallocr_new" => new as *const c_void,
        "ggml_gallocr_free" => free as *const c_void,
        "ggml_gallocr_alloc_graph" => alloc_graph as *const c_void,
        "ggml_gallocr_get_buffer_size" => buffer_size as *const c_void,
        "ggml_gallocr_reserve" | "ggml_op_can_inplace" => null(),
        _ => never as *const c_void,
    }
}

#[test]
fn an_unknown_layout_leaves_the_hosts_own_allocator_in_place() {
    assert!(use_symbols(symbols));
    // SAFETY: the host's functions ignore their arguments.
    let allocator = unsafe { ggml_gallocr_new(dangling_mut()) };
    assert_eq!(allocator, dangling_mut());
    // SAFETY: as above.
    assert!(unsafe { ggml_gallocr_alloc_graph(allocator, null_mut()) });
    // SAFETY: as above.
    assert_eq!(unsafe { ggml_gallocr_get_buffer_size(allocator, 7) }, 1007);
    // SAFETY: the host has no such function, so the result is `false`.
    assert!(!unsafe { ggml_gallocr_reserve(allocator, null_mut()) });
    // SAFETY: as above.
    assert!(!unsafe { ggml_op_can_inplace(2) });
    // SAFETY: as above.
    unsafe { ggml_gallocr_free(allocator) };
    assert_eq!(CALLS.load(Ordering::SeqCst), 3);
    assert!(!use_symbols(symbols), "it is too late for that");
}
