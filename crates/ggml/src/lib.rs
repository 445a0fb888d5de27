//! A drop-in replacement of [ggml-alloc] for llama.cpp, whisper.cpp and other programs with ggml.
//!
//! This library exports the functions of `ggml-alloc.h`. Preloaded (`LD_PRELOAD`), they replace the host's, and Orlop plans
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
mod raw;
mod report;
mod runtime;
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
    Backend, Buffer, BufferType, Context, FLAG_INPUT, FLAG_OUTPUT, InitParams, MAX_SRC, OP_NONE, RawGraph,
    RawTensor, RawTensorAllocator, STATUS_ALLOC_FAILED, STATUS_SUCCESS, USAGE_COMPUTE,
};
pub use runtime::use_symbols;
pub use symbols::Symbols;
