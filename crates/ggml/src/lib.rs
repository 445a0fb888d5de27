//! A drop-in replacement of [ggml-alloc] for llama.cpp, whisper.cpp and other programs with ggml.
//!
//! This library exports the functions of `ggml-alloc.h` and those of the scheduler in `ggml-backend.h`. Preloaded (`LD_PRELOAD`), they replace the host's, and Orlop plans
//! the memory of graphs. Lifetimes, order and in-place operations stay as in ggml, only offsets differ. Everything else
//! (buffers, tensor initialization) is done by the host's functions, found by name.
//!
//! Data flow: `graph_tensors` numbers the tensors of a graph, `usage` computes their lifetimes, `orlop-alloc` plans,
//! `cached_plan` stores the plan to compare the next graph with, `chunks` are the host's buffers. The first call checks
//! with `layout` that the host's objects match `raw`; if they do not, all calls go to the host's own functions.
//!
//! [ggml-alloc]: https://github.com/ggml-org/llama.cpp/blob/master/ggml/include/ggml-alloc.h
#![warn(clippy::unwrap_used)]

mod cached_plan;
mod chunks;
mod context;
mod error;
mod exports;
mod graph_allocator;
mod graph_tensors;
mod host;
mod layout;
mod picture;
mod plan_json;
mod pointers;
mod raw;
mod report;
mod runtime;
mod scheduler;
mod scheduler_exports;
mod symbols;
mod usage;

pub use exports::{
    ggml_backend_alloc_ctx_tensors, ggml_backend_alloc_ctx_tensors_from_buft,
    ggml_backend_alloc_ctx_tensors_from_buft_size, ggml_gallocr_alloc_graph, ggml_gallocr_free,
    ggml_gallocr_get_buffer_size, ggml_gallocr_new, ggml_gallocr_new_n, ggml_gallocr_reserve,
    ggml_gallocr_reserve_n, ggml_gallocr_reserve_n_size, ggml_op_can_inplace, ggml_tallocr_alloc,
    ggml_tallocr_new,
};
pub use graph_allocator::GgmlGraphAllocator;
pub use raw::{
    Backend, Buffer, BufferType, Context, DEVICE_CPU, DeviceHandle, EvalCallback, Event, FLAG_INPUT,
    FLAG_OUTPUT, InitParams, MAX_SRC, OP_NONE, RawGraph, RawGraphView, RawTensor, RawTensorAllocator,
    STATUS_ALLOC_FAILED, STATUS_FAILED, STATUS_SUCCESS, USAGE_COMPUTE, USAGE_WEIGHTS,
};
pub use runtime::use_symbols;
pub use scheduler::GgmlScheduler;
pub use scheduler_exports::{
    ggml_backend_sched_alloc_graph, ggml_backend_sched_free, ggml_backend_sched_get_backend,
    ggml_backend_sched_get_buffer_size, ggml_backend_sched_get_buffer_type,
    ggml_backend_sched_get_n_backends, ggml_backend_sched_get_n_copies, ggml_backend_sched_get_n_splits,
    ggml_backend_sched_get_tensor_backend, ggml_backend_sched_graph_compute,
    ggml_backend_sched_graph_compute_async, ggml_backend_sched_new, ggml_backend_sched_reserve,
    ggml_backend_sched_reserve_size, ggml_backend_sched_reset, ggml_backend_sched_set_eval_callback,
    ggml_backend_sched_set_tensor_backend, ggml_backend_sched_split_graph, ggml_backend_sched_synchronize,
};
pub use symbols::Symbols;
