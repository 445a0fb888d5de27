//! The functions of ggml's scheduler in `ggml-backend.h`.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::error::Error;
use crate::exports::{answer, forward, list};
use crate::raw::{
    Backend, BufferType, EvalCallback, RawGraph, RawTensor, STATUS_ALLOC_FAILED, STATUS_FAILED,
    STATUS_SUCCESS, TensorRef,
};
use crate::runtime::{Interposer, Runtime, runtime};
use crate::scheduler::{GgmlScheduler, Observer};

/// The addresses of the schedulers made here. The program's own functions make and serve the others.
static OURS: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(Mutex::default);

fn is_ours(scheduler: *mut GgmlScheduler) -> bool {
    OURS.lock().unwrap_or_else(PoisonError::into_inner).contains(&scheduler.addr())
}

/// A function of the scheduler: served here if the scheduler was made here, else passed to the host's function of the same name.
macro_rules! scheduler_exports {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($scheduler:ident $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?, else $otherwise:expr, $serve:block
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the header says: pointers are null or objects of the host's that live, and no other thread uses them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(scheduler: *mut GgmlScheduler $(, $argument: $kind)*) $(-> $result)? {
            type Function = unsafe extern "C" fn(*mut GgmlScheduler $(, $kind)*) $(-> $result)?;
            if is_ours(scheduler) {
                // SAFETY: `&mut *` asks for a live object that no other thread uses: it was made here and is not freed, and the rest is
                // the header's contract.
                let $scheduler = unsafe { &mut *scheduler };
                return answer($otherwise, || $serve);
            }
            let ours = $name as Function as *const c_void;
            // SAFETY: ggml's function of this name has this signature.
            match unsafe { forward::<Function>(stringify!($name), ours) } {
                // SAFETY: the function asks for what this one's contract, the header's, says.
                Some(function) => unsafe { function(scheduler $(, $argument)*) },
                None => $otherwise,
            }
        }
    )*};
}

/// A scheduler over backends.
///
/// # Safety
/// As the header says: the lists have `count` entries, or `bufts` is null; backends outlive the scheduler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ggml_backend_sched_new(
    backends: *mut *mut Backend,
    bufts: *mut *mut BufferType,
    count: c_int,
    graph_size: usize,
    parallel: bool,
    op_offload: bool,
) -> *mut GgmlScheduler {
    type Function = unsafe extern "C" fn(
        *mut *mut Backend,
        *mut *mut BufferType,
        c_int,
        usize,
        bool,
        bool,
    ) -> *mut GgmlScheduler;
    if let Runtime::Interposed(ours) = runtime()
        && ours.scheduler.is_some()
        && (!parallel || ours.is_parallel)
    {
        let made = answer(null_mut(), || {
            let count = usize::try_from(count).map_err(|_| Error::BadBackends { count })?;
            // SAFETY: `list` asks for null or `count` entries: the header's contract.
            let backends = unsafe { list(backends.cast_const(), count) };
            let backends = backends.ok_or(Error::Null { what: "the list of backends" })?;
            // SAFETY: as above.
            let bufts = unsafe { list(bufts.cast_const(), count) };
            made(ours, backends, bufts, parallel, op_offload)
        });
        if !made.is_null() {
            return made;
        }
    }
    let ours = ggml_backend_sched_new as Function as *const c_void;
    // SAFETY: ggml's function of this name has this signature.
    match unsafe { forward::<Function>("ggml_backend_sched_new", ours) } {
        // SAFETY: the function asks for what this one's contract, the header's, says.
        Some(function) => unsafe { function(backends, bufts, count, graph_size, parallel, op_offload) },
        None => null_mut(),
    }
}

fn made(
    ours: &'static Interposer,
    backends: &[*mut Backend],
    bufts: Option<&[*mut BufferType]>,
    parallel: bool,
    op_offload: bool,
) -> Result<*mut GgmlScheduler, Error> {
    let functions = ours.scheduler.as_ref().ok_or(Error::Null { what: "the scheduler's functions" })?;
    let made = GgmlScheduler::new(ours, functions, backends, bufts, parallel, op_offload)?;
    let made = Box::into_raw(Box::new(made));
    OURS.lock().unwrap_or_else(PoisonError::into_inner).insert(made.addr());
    Ok(made)
}

/// The status of a computation.
fn status(done: Result<(), Error>) -> Result<c_int, Error> {
    match done {
        Ok(()) => Ok(STATUS_SUCCESS),
        Err(error @ Error::NotComputed { status, .. }) => Ok(answer(status, || Err(error))),
        Err(error @ (Error::NoMemory { .. } | Error::Plan(_) | Error::NotBound { .. })) => {
            Ok(answer(STATUS_ALLOC_FAILED, || Err(error)))
        }
        Err(error) => Err(error),
    }
}

scheduler_exports! {
    /// Frees a scheduler.
    fn ggml_backend_sched_free(scheduler), else (), {
        OURS.lock().unwrap_or_else(PoisonError::into_inner).remove(&std::ptr::from_mut(scheduler).addr());
        // SAFETY: `from_raw` asks for a box of ours that is not used again: `made` made it, and it is no longer listed.
        drop(unsafe { Box::from_raw(scheduler) });
        Ok(())
    }

    /// Bytes that `ggml_backend_sched_reserve` would allocate, for each backend.
    fn ggml_backend_sched_reserve_size(scheduler, graph: *mut RawGraph, sizes: *mut usize), else (), {
        if sizes.is_null() {
            return Err(Error::Null { what: "the list of sizes" });
        }
        // SAFETY: `from_raw_parts_mut` asks for as many writable numbers as there are backends: the header's contract.
        let sizes = unsafe { std::slice::from_raw_parts_mut(sizes, scheduler.backends().len()) };
        sizes.fill(0);
        // SAFETY: `measure` asks for a live graph that no other thread uses: the header's contract.
        sizes.copy_from_slice(&unsafe { scheduler.measure(graph) }?);
        Ok(())
    }

    /// Allocates memory for a graph that is at least as large as those to come.
    fn ggml_backend_sched_reserve(scheduler, graph: *mut RawGraph) -> bool, else false, {
        // SAFETY: `reserve` asks for a live graph that no other thread uses: the header's contract.
        unsafe { scheduler.reserve(graph) }.map(|()| true)
    }

    /// Number of backends.
    fn ggml_backend_sched_get_n_backends(scheduler) -> c_int, else 0, {
        Ok(scheduler.backends().len() as c_int)
    }

    /// A backend.
    fn ggml_backend_sched_get_backend(scheduler, index: c_int) -> *mut Backend, else null_mut(), {
        let found = usize::try_from(index).ok().and_then(|index| scheduler.backends().get(index));
        found.copied().ok_or(Error::ForeignBackend)
    }

    /// Splits of the last graph.
    fn ggml_backend_sched_get_n_splits(scheduler) -> c_int, else 0, {
        Ok(scheduler.split_count() as c_int)
    }

    /// Graphs that may run at a time.
    fn ggml_backend_sched_get_n_copies(scheduler) -> c_int, else 1, {
        Ok(scheduler.copy_count() as c_int)
    }

    /// The type of a backend's buffers.
    fn ggml_backend_sched_get_buffer_type(scheduler, backend: *mut Backend) -> *mut BufferType, else null_mut(), {
        scheduler.buffer_type(backend)
    }

    /// Bytes of a backend's buffers.
    fn ggml_backend_sched_get_buffer_size(scheduler, backend: *mut Backend) -> usize, else 0, {
        scheduler.buffer_bytes(backend)
    }

    /// Chooses the backend of a tensor.
    fn ggml_backend_sched_set_tensor_backend(scheduler, node: *mut RawTensor, backend: *mut Backend), else (), {
        // SAFETY: `TensorRef::new` asks for null or a live tensor that no other thread uses: the header's contract.
        let node = unsafe { TensorRef::new(node) }.ok_or(Error::Null { what: "the tensor" })?;
        scheduler.choose(node, backend)
    }

    /// The backend of a tensor, or null.
    fn ggml_backend_sched_get_tensor_backend(scheduler, node: *mut RawTensor) -> *mut Backend, else null_mut(), {
        // SAFETY: as above.
        let node = unsafe { TensorRef::new(node) }.ok_or(Error::Null { what: "the tensor" })?;
        Ok(scheduler.backend_of(node).unwrap_or(null_mut()))
    }

    /// Places and splits a graph.
    fn ggml_backend_sched_split_graph(scheduler, graph: *mut RawGraph), else (), {
        // SAFETY: `split` asks for a live graph that no other thread uses: the header's contract.
        unsafe { scheduler.split(graph) }.map(|_| ())
    }

    /// Gives a graph memory.
    fn ggml_backend_sched_alloc_graph(scheduler, graph: *mut RawGraph) -> bool, else false, {
        // SAFETY: `allocate` asks for a live graph that no other thread uses: the header's contract.
        unsafe { scheduler.allocate(graph) }.map(|()| true)
    }

    /// Runs a graph, and waits for it.
    fn ggml_backend_sched_graph_compute(scheduler, graph: *mut RawGraph) -> c_int, else STATUS_FAILED, {
        // SAFETY: `compute` asks for a live graph, the last one if that has memory, that no other thread uses: the header's
        // contract.
        let done = unsafe { scheduler.compute(graph) };
        scheduler.synchronize();
        status(done)
    }

    /// Runs a graph.
    fn ggml_backend_sched_graph_compute_async(scheduler, graph: *mut RawGraph) -> c_int, else STATUS_FAILED, {
        // SAFETY: as above.
        status(unsafe { scheduler.compute(graph) })
    }

    /// Waits for all backends.
    fn ggml_backend_sched_synchronize(scheduler), else (), {
        scheduler.synchronize();
        Ok(())
    }

    /// Forgets the last graph and the chosen backends.
    fn ggml_backend_sched_reset(scheduler), else (), {
        scheduler.reset();
        Ok(())
    }

    /// Sets the function that observes results; null for none.
    fn ggml_backend_sched_set_eval_callback(
        scheduler,
        callback: Option<EvalCallback>,
        data: *mut c_void
    ), else (), {
        scheduler.observer = Observer::new(callback, data);
        Ok(())
    }
}
