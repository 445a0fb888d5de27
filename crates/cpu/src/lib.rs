//! The CPU device: kernels for every op, on the threads of a [`ThreadPool`].
//!
//! - `lower` turns a segment into steps: one per node, then rules that share int8 activations, fuse a step with the only
//!   reader of its result, and join products of the same activations; last come the temporaries for scratch.
//! - `program` binds steps to memory and runs them, group by group. Steps of a group do not depend on each other: threads of
//!   the `pool` claim parts of them, and share the work of products by work stealing (`work_shares`).
//! - `kernels` hold the computations, by family. They reach tensors through the bounds-checked accessors of `access`, which
//!   deal with element types, strides and repacked tiles. The one thing that types cannot check, that threads write
//!   different bytes, each kernel's author vouches for (`task::KernelBody::new`).
//! - `vector` and `simd` are the inner loops, written for every instruction set of [`Isa`]; `repack` is the layout of
//!   weights that products read fastest.
//!
//! Results do not depend on the number of threads.
#![warn(clippy::unwrap_used)]

mod access;
mod caches;
mod device;
mod isa;
mod kernels;
mod lower;
mod memory;
mod pool;
mod program;
mod queue;
mod repack;
mod simd;
mod task;
mod vector;
mod work_shares;

pub use device::{CpuDevice, CpuOptions};
pub use isa::Isa;
pub use pool::ThreadPool;
