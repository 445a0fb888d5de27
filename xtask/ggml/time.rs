//! Times the current allocator and ggml's own alternately.

use std::ffi::{CStr, c_int, c_void};
use std::time::Instant;

use llama_cpp_sys_2::*;
use serde_json::{Value, json};

use crate::Result;
use crate::graph::{Model, NOTHING};

unsafe extern "C" {
    fn dlopen(name: *const std::ffi::c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const std::ffi::c_char) -> *mut c_void;
}

const LAZY: c_int = 1;
const NOLOAD: c_int = 4;

/// An allocator by its functions.
struct Allocator {
    handle: ggml_gallocr_t,
    free: unsafe extern "C" fn(ggml_gallocr_t),
    reserve: unsafe extern "C" fn(ggml_gallocr_t, *mut ggml_cgraph, *const c_int, *const c_int) -> bool,
    allocate: unsafe extern "C" fn(ggml_gallocr_t, *mut ggml_cgraph) -> bool,
    bytes: unsafe extern "C" fn(ggml_gallocr_t, c_int) -> usize,
}

impl Drop for Allocator {
    fn drop(&mut self) {
        // SAFETY: it was made by the function's sister, and is not used again.
        unsafe { (self.free)(self.handle) }
    }
}

fn find<F: Copy>(library: *mut c_void, name: &CStr) -> Result<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: the library is loaded, and the name ends in a zero.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("there is no {name:?}").into());
    }
    // SAFETY: callers name ggml's functions with their own signatures.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

impl Allocator {
    fn of(library: *mut c_void) -> Result<Allocator> {
        // Not `ggml_gallocr_new`: ggml's own calls this one by name, which resolves to the preloaded function.
        let new: unsafe extern "C" fn(*mut ggml_backend_buffer_type_t, c_int) -> ggml_gallocr_t =
            find(library, c"ggml_gallocr_new_n")?;
        // SAFETY: ggml's type for ordinary memory is always there.
        let mut kind = unsafe { ggml_backend_cpu_buffer_type() };
        // SAFETY: the list has one entry.
        let handle = unsafe { new(&raw mut kind, 1) };
        Ok(Allocator {
            handle,
            free: find(library, c"ggml_gallocr_free")?,
            reserve: find(library, c"ggml_gallocr_reserve_n")?,
            allocate: find(library, c"ggml_gallocr_alloc_graph")?,
            bytes: find(library, c"ggml_gallocr_get_buffer_size")?,
        })
    }
}

/// Times in microseconds.
fn timed(times: &mut Vec<f64>, what: impl FnOnce() -> bool) -> Result<()> {
    let began = Instant::now();
    let done = what();
    times.push(began.elapsed().as_secs_f64() * 1e6);
    if done { Ok(()) } else { Err("an allocator refused".into()) }
}

fn middle(times: &mut [f64]) -> Value {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    json!({ "least": at(0.0), "median": at(0.5), "most": at(0.9) })
}

/// One side of the comparison.
struct Side {
    library: *mut c_void,
    allocator: Allocator,
    /// With new allocators.
    first: Vec<f64>,
    /// With an allocator that has buffers.
    again: Vec<f64>,
    allocate: Vec<f64>,
}

impl Side {
    fn new(library: *mut c_void) -> Result<Side> {
        let allocator = Allocator::of(library)?;
        Ok(Side { library, allocator, first: Vec::new(), again: Vec::new(), allocate: Vec::new() })
    }

    fn reserve(&mut self, model: &Model) -> Result<()> {
        let reserve = |allocator: &Allocator| {
            // SAFETY: both live; without numbers all is the first buffer's.
            unsafe { (allocator.reserve)(allocator.handle, model.graph, NOTHING, NOTHING) }
        };
        model.clear();
        let fresh = Allocator::of(self.library)?;
        timed(&mut self.first, || reserve(&fresh))?;
        timed(&mut self.again, || reserve(&self.allocator))
    }

    fn allocate(&mut self, model: &Model) -> Result<()> {
        model.clear();
        // SAFETY: both live.
        timed(&mut self.allocate, || unsafe { (self.allocator.allocate)(self.allocator.handle, model.graph) })
    }

    fn answer(mut self) -> Value {
        // SAFETY: it lives.
        let bytes = unsafe { (self.allocator.bytes)(self.allocator.handle, 0) };
        // Skip the first run, which allocates buffers.
        self.again.remove(0);
        json!({
            "bytes": bytes,
            "first_reserve_us": middle(&mut self.first),
            "reserve_us": middle(&mut self.again),
            "alloc_graph_us": middle(&mut self.allocate),
        })
    }
}

pub(crate) fn compare(rounds: usize) -> Result<Value> {
    // SAFETY: the library is there already; nothing is loaded.
    let theirs = unsafe { dlopen(c"libggml-base.so.0".as_ptr(), LAZY | NOLOAD) };
    let in_place = std::ptr::null_mut();
    let address = |library: *mut c_void| find::<*mut c_void>(library, c"ggml_gallocr_new");
    if address(in_place)? == address(theirs)? {
        return Err("nothing was preloaded".into());
    }
    let model = Model::new(512);
    let (mut ours, mut ggml) = (Side::new(in_place)?, Side::new(theirs)?);
    for _ in 0..rounds.max(2) {
        ours.reserve(&model)?;
        ggml.reserve(&model)?;
    }
    for _ in 0..rounds * 10 {
        ours.allocate(&model)?;
        ggml.allocate(&model)?;
    }
    Ok(json!({ "nodes": model.nodes(), "orlop": ours.answer(), "ggml": ggml.answer() }))
}
