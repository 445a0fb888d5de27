//! The CPU device: kernels for every op, on the threads of a [`ThreadPool`].
//!
//! A graph is lowered to one step a node, with scratch for each thread as temporaries of the plan. A compiled
//! program runs all its steps in one go on the pool; threads meet at a barrier after each step. Kernels read
//! rows into their scratch and write rows from there (`access`), so element types, strides and in-place
//! results are not their business, and they contain no unsafe code.
//!
//! Results do not depend on the number of threads.

mod access;
mod device;
mod isa;
mod kernels;
mod lower;
mod pool;
mod program;
mod queue;
mod repack;
mod simd;
mod taken;
mod task;
mod vector;

pub use device::{CpuDevice, CpuOptions};
pub use isa::Isa;
pub use pool::ThreadPool;
