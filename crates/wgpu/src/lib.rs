//! A portable GPU device on [`wgpu`](https://github.com/gfx-rs/wgpu): Vulkan, Metal and DX12.
//!
//! [`adapters`] lists the adapters; [`WgpuDevice`] opens one. A buffer is at most as large as the adapter's largest binding,
//! so every kernel binds whole buffers and addresses its tensors by offsets in its parameters. Compiling a program creates
//! its pipelines, bind groups and parameters; a run encodes dispatches and submits once. Kernels are WGSL, generated from
//! templates that read elements of each type, and cached per device.
#![warn(clippy::unwrap_used)]

mod adapter;
mod buffer;
mod counts;
mod device;
mod error;
mod gpu;
mod kernels;
mod lower;
mod program;
mod queue;
mod staging;
mod timing;
mod wgsl;

pub use adapter::{Adapter, adapters};
pub use counts::Counts;
pub use device::{WgpuDevice, WgpuOptions};
pub use error::Error;
pub use timing::KernelTime;
