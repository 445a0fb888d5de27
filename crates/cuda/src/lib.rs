//! NVIDIA cards as devices. The driver and NVRTC, which compiles the kernels for the card that is there, are
//! loaded at run time: a program with this crate in it runs on machines that have neither.
//!
//! - `sys` is the only place that calls the driver; everything there returns a value.
//! - A graph is lowered by a list of rules (`lower`) to steps; a step becomes one or a few launches
//!   (`kernels`), whose places and extents are fixed. What changes from run to run is read from memory on the
//!   card, so that a program that is run again is one replay of a CUDA graph (`program`).
//! - Weights in blocks lie in planes (`planes`): nibbles, further bits and scales each for themselves, so that
//!   every load is aligned and wide. They come out as they went in.
//! - All memory is the plan's: arenas, weights, scratch. Beside it are only the driver's context, modules and graphs,
//!   a page for error marks a program, and pinned memory of a fixed size for small transfers.

mod buffer;
mod context;
mod device;
mod error;
mod event;
mod flights;
mod kernels;
mod lower;
mod modules;
mod planes;
mod program;
mod queue;
mod supports;
mod sys;

pub use device::{CudaDevice, CudaOptions, devices};
pub use error::Error;
