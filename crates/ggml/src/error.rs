//! Errors behind a result of false or null.

/// Why a call returns false or null.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what} is null")]
    Null { what: &'static str },
    #[error("tensor {position} of the {list} is null")]
    NullTensor { list: &'static str, position: usize },
    #[error("`{tensor}` is a view of itself")]
    ViewLoop { tensor: String },
    #[error("{what} {position} names buffer {id} of {buffers}")]
    BadBufferId { what: &'static str, position: usize, id: i32, buffers: usize },
    #[error("planning failed: {0}")]
    Plan(#[from] orlop_alloc::Error),
    #[error("{buffer} cannot allocate {bytes} bytes")]
    NoMemory { buffer: String, bytes: u64 },
    #[error("`{tensor}` needs {bytes} bytes, but {left} of {buffer} bytes are free")]
    Full { tensor: String, bytes: usize, left: usize, buffer: usize },
    #[error("cannot initialize `{tensor}`: ggml's status is {status}")]
    NotBound { tensor: String, status: i32 },
    #[error("no backend computes `{tensor}`")]
    NoBackend { tensor: String },
    #[error("{count} backends, of which the last is to be the CPU")]
    BadBackends { count: i32 },
    #[error("backend {backend} is of an unknown layout")]
    UnknownBackend { backend: usize },
    #[error("a backend that is not the scheduler's")]
    ForeignBackend,
    #[error("no context of {bytes} bytes")]
    NoContext { bytes: usize },
    #[error("{backend} failed: ggml's status is {status}")]
    NotComputed { backend: String, status: i32 },
    #[error("the context allocates its tensors itself (no_alloc is false)")]
    ContextAllocates,
}
