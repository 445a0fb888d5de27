//! NVIDIA GPUs as devices. The driver and [NVRTC](https://docs.nvidia.com/cuda/nvrtc/), which compiles the kernels for the
//! GPU at hand, are loaded at run time: a program with this crate in it runs on machines that have neither.
//!
//! - `sys` is the only place that calls the driver: owned objects that destroy themselves, and `unsafe` operations on streams.
//! - A graph is lowered by a list of rules (`lower`) to steps; a step becomes one or a few launches (`kernels`), whose
//!   addresses and extents are fixed. What changes from run to run is read from GPU memory, so that a program that is run
//!   again is one replay of a [CUDA graph](https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-graphs)
//!   (`program`).
//! - Quantized weights lie in planes (`planes`): nibbles, further bits and scales each by themselves, so that every load is
//!   aligned and wide. They are read back as they were written.
//! - All memory is planned: arenas, weights, scratch. Beside it are only the driver's context, modules and graphs, 64 bytes a
//!   program in which kernels report bad indices (`kernel_errors`), and pinned memory of a fixed size for transfers:
//!   for small ones of the device, and for each queue that sets or gets bytes (`queue_staging`). [`CudaDevice`] states both in
//!   its facts.
#![warn(clippy::unwrap_used)]

mod async_uploads;
mod buffer;
mod context;
mod device;
mod error;
mod event;
mod kernel_errors;
mod kernels;
mod lower;
mod modules;
mod planes;
mod program;
mod queue;
mod queue_staging;
mod supports;
mod sys;
mod types_header;

pub use device::{CudaDevice, CudaOptions, devices};
pub use error::Error;
