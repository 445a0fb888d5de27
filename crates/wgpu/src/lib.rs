//! A portable GPU device on `wgpu`: Vulkan, Metal and DX12 alike.
//!
//! [`adapters`] lists what there is; [`WgpuDevice`] opens one. Memory lies in buffers of at most the adapter's largest
//! binding, so that every kernel binds whole buffers and reaches its tensors by offsets in its parameters. A program's
//! pipelines, bind groups and parameters are made when it is compiled; a run encodes dispatches and submits once.
//! Kernels are WGSL, made from small templates that know how elements of each type are read, and are
//! shared by all programs of a device.
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
