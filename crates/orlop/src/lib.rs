//! Tensor graphs with planned memory: build a graph, know what it takes to the byte, run it on any mix of devices.
//!
//! The names at the root serve three kinds of programs. The crates below them are modules, for everything else.
//!
//! # Run a language model
//!
//! A [`Blueprint`] is a model planned for a machine; an [`Engine`] allocates exactly that. A [`TextModel`] does both, and
//! brings the tokenizer.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use orlop::{Machine, Model, Settings, TextModel, TextOptions, devices};
//!
//! let machine = Machine::new(devices::all(&Default::default())?)?;
//! let settings = Settings { threads: devices::physical_cores(), ..Settings::default() };
//! let mut model = TextModel::load(&Model::open("model.gguf")?, &machine, &settings)?;
//! let options = TextOptions { max_tokens: Some(32), ..TextOptions::default() };
//! model.generate("Once upon a time", &options, &mut |piece| {
//!     print!("{piece}");
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Run a graph
//!
//! A [`GraphBuilder`] makes an immutable [`Graph`]; a [`Session`] places, plans and runs it.
//!
//! ```
//! use orlop::{DType, GraphBuilder, Machine, Session, SessionOptions, devices};
//!
//! let mut b = GraphBuilder::new();
//! let x = b.input("x", DType::F32, &[2]);
//! let w = b.weight("w", DType::F32, &[2, 3]);
//! let y = b.mul_mat(w, x);
//! b.output(y);
//! let graph = b.build()?;
//!
//! let mut session = Session::new(Machine::new(devices::all(&Default::default())?)?, SessionOptions::default())?;
//! let weights = session.upload(&graph, &[("w", &[1.0f32, 2.0, -1.0, 1.0, 0.5, -4.0])])?;
//! let plan = session.prepare(&graph, &weights)?;
//! assert_eq!(session.run_f32(plan, &[(x, &[3.0, 1.0])], y)?, [5.0, -2.0, -2.5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Plan memory
//!
//! [`solve`] places buffers with lifetimes; a [`GraphAllocator`] plans and binds graphs in buffers of your own.
//!
//! ```
//! use orlop::{BufferSpec, Problem, SolveOptions, solve};
//!
//! let mut problem = Problem::default();
//! let a = problem.push(BufferSpec::new(4096, 64, 0..2))?; // bytes, alignment, steps
//! let b = problem.push(BufferSpec::new(4096, 64, 2..4))?;
//! let plan = solve(&problem, &SolveOptions::default())?;
//! assert_eq!((plan.place(a), plan.peak), (plan.place(b), 4096));
//! # Ok::<(), orlop::plan::PlanError>(())
//! ```
//!
//! Features add devices: `cuda` and `wgpu`. A device of your own implements [`Device`].
#![warn(clippy::unwrap_used)]

#[cfg(doctest)]
mod documents;

mod cores;
#[cfg(feature = "default-model")]
pub mod default_model;
pub mod devices;
#[cfg(feature = "hub")]
pub mod hub;
pub mod model_options;
pub mod model_pictures;

// Run a model.
pub use orlop_llm::{
    Blueprint, Chat, Engine, Model, Sampler, SamplingOptions, Settings, TextModel, TextOptions, Tokenizer,
};

// Run a graph.
pub use orlop_alloc::Externals;
pub use orlop_backend::{Device, RunOptions};
pub use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
pub use orlop_sched::{Constraints, Machine, PlanId, Session, SessionOptions};

// Plan memory.
pub use orlop_alloc::{GraphAllocator, MemoryPlan};
pub use orlop_plan::{BufferSpec, Plan, Problem, SolveOptions, solve};

/// Bytes, lifetimes, offsets: the planner.
pub use orlop_plan as plan;

/// Tensor graphs as immutable data.
pub use orlop_graph as graph;

/// Scalar codecs for GGUF block types.
pub use orlop_quant as quant;

/// Devices, buffers, queues.
pub use orlop_backend as backend;

/// Memory plans, and allocators over buffers.
pub use orlop_alloc as alloc;

/// One graph over many devices.
pub use orlop_sched as sched;

/// The CPU device.
pub use orlop_cpu as cpu;

/// Devices of other machines.
pub use orlop_rpc as rpc;

/// NVIDIA GPUs (feature `cuda`).
#[cfg(feature = "cuda")]
pub use orlop_cuda as cuda;

/// GPUs through Vulkan, Metal and DX12 (feature `wgpu`).
#[cfg(feature = "wgpu")]
pub use orlop_wgpu as wgpu;

/// GGUF files, read and written.
pub use orlop_gguf as gguf;

/// Memory plans as pictures.
pub use orlop_view as view;

/// A server for language models over HTTP (feature `http`).
#[cfg(feature = "http")]
pub use orlop_http as http;

/// Language models: from a GGUF file to text.
pub use orlop_llm as llm;
