#![doc = include_str!("../../../README.md")]

/// Bytes, lifetimes, offsets: the planner.
pub use orlop_plan as plan;

/// Tensor graphs as immutable data.
pub use orlop_graph as graph;

/// Scalar codecs for GGUF block types.
pub use orlop_quant as quant;

/// Devices, buffers, queues.
pub use orlop_backend as backend;

/// Allocators and one-device sessions.
pub use orlop_alloc as alloc;

/// One graph over many devices.
pub use orlop_sched as sched;

/// The CPU device.
pub use orlop_cpu as cpu;

/// NVIDIA cards as devices.
#[cfg(feature = "cuda")]
pub use orlop_cuda as cuda;

/// A portable GPU device (feature `wgpu`).
#[cfg(feature = "wgpu")]
pub use orlop_wgpu as wgpu;

/// GGUF files, read and written.
pub use orlop_gguf as gguf;

/// Memory plans as pictures.
pub use orlop_view as view;

/// Language models: from a GGUF file to text.
pub use orlop_llm as llm;
