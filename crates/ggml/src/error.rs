/// Why a call gives false or null.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what} is null")]
    Null { what: &'static str },
    #[error("tensor {position} of the {list} is null")]
    NullTensor { list: &'static str, position: usize },
    #[error("`{tensor}` is a view of itself")]
    ViewLoop { tensor: String },
    #[error("{what} {position} asks for buffer {id}, there are {buffers}")]
    BadBufferId { what: &'static str, position: usize, id: i32, buffers: usize },
    #[error("planning failed: {0}")]
    Plan(#[from] orlop_alloc::Error),
    #[error("{buffer} gave no {bytes} bytes")]
    NoMemory { buffer: String, bytes: u64 },
    #[error("`{tensor}` needs {bytes} bytes, {left} of {buffer} bytes are left")]
    Full { tensor: String, bytes: usize, left: usize, buffer: usize },
    #[error("`{tensor}` could not be bound: ggml's status is {status}")]
    NotBound { tensor: String, status: i32 },
    #[error("the context gives its tensors memory of its own")]
    ContextAllocates,
}
