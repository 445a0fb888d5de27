//! Orlop's allocator under programs that have ggml's: llama.cpp, whisper.cpp and their like.
//!
//! This library has the functions of `ggml-alloc.h`. Preloaded, they take the place of the host's, and graphs are
//! planned by Orlop: lifetimes, order and what is done in place stay as ggml has them, only places differ. Everything
//! else (buffers, binding, tensors) is asked of the host, whose functions are found by name.
//!
//! The way of a graph: `census` numbers its tensors, `usage` says who uses which memory when, `orlop-alloc` plans,
//! `record` keeps the plan by position for the next graph to be compared with, `chunks` are the host's buffers. At the
//! first call, `layout` checks that the host's objects lie in memory as `raw` has them; if they do not, all calls go to
//! the host's own functions.
#![warn(clippy::unwrap_used)]

mod census;
mod chunks;
mod context;
mod drawn;
mod error;
mod exports;
mod graph_allocator;
mod host;
mod layout;
mod picture;
mod raw;
mod record;
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
