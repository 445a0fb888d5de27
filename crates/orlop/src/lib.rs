//! Tensor graphs with planned memory: build a graph, know what it takes to the byte, run it on any mix of devices.
//!
//! # Run a language model
//!
//! [`llm::Blueprint::plan`] reads a GGUF file and plans everything; [`llm::Engine::load`] allocates exactly that.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use orlop::cpu::{CpuDevice, ThreadPool};
//! use orlop::llm::{
//!     Blueprint, Engine, GenerateEvent, Model, Sampler, SamplingOptions, Settings, Special, Tokenizer, generate,
//! };
//! use orlop::sched::Machine;
//!
//! let model = Model::open("model.gguf")?;
//! let tokenizer = Tokenizer::from_metadata(model.file().metadata())?;
//! let machine = Machine::new([CpuDevice::new(ThreadPool::for_machine()?) as _])?;
//! let blueprint = Blueprint::plan(&model, &machine, &Settings::default())?;
//! println!("{} bytes", blueprint.forecast()?.devices[0].total());
//!
//! let mut engine = Engine::load(blueprint, &mut |_, _| ())?;
//! let mut sampler = Sampler::new(SamplingOptions::default(), 42);
//! let prompt = tokenizer.prompt("Once upon a time", Special::Parse);
//! generate(&mut engine, &tokenizer, &mut sampler, &prompt, Some(32), &mut |event| {
//!     if let GenerateEvent::Token(token) = event {
//!         print!("{}", String::from_utf8_lossy(tokenizer.decode(token)));
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Run a graph
//!
//! [`graph::GraphBuilder`] makes an immutable [`graph::Graph`]; [`sched::Session`] places, plans and runs it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use orlop::alloc::Externals;
//! use orlop::backend::RunOptions;
//! use orlop::cpu::{CpuDevice, ThreadPool};
//! use orlop::graph::{DType, GraphBuilder};
//! use orlop::sched::{Machine, Session, SessionOptions};
//!
//! let mut b = GraphBuilder::new();
//! let x = b.input("x", DType::F32, &[2]);
//! let y = b.sqr(x);
//! b.output(y);
//! let graph = Arc::new(b.build()?);
//!
//! let machine = Machine::new([CpuDevice::new(ThreadPool::for_machine()?) as _])?;
//! let mut session = Session::new(machine, SessionOptions::default())?;
//! let plan = session.prepare(&graph, &Externals::new())?;
//! session.set(plan, x, &[2f32, 3.0].map(f32::to_le_bytes).concat())?;
//! session.run(plan, &RunOptions::default())?;
//! let mut result = [0; 8];
//! session.get(plan, y, &mut result)?;
//! assert_eq!(result, [4f32, 9.0].map(f32::to_le_bytes).concat()[..]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Plan memory
//!
//! [`plan::solve`] places buffers with lifetimes; [`alloc::GraphAllocator`] plans and binds graphs in buffers of your own.
//!
//! ```
//! use orlop::plan::{BufferSpec, Problem, SolveOptions, solve};
//!
//! let mut problem = Problem::default();
//! let a = problem.push(BufferSpec::new(4096, 64, 0..2))?; // bytes, alignment, steps
//! let b = problem.push(BufferSpec::new(4096, 64, 2..4))?;
//! let plan = solve(&problem, &SolveOptions::default())?;
//! assert_eq!((plan.place(a), plan.peak), (plan.place(b), 4096));
//! # Ok::<(), orlop::plan::PlanError>(())
//! ```
//!
//! Features add devices: `cuda` and `wgpu`. A device of your own implements [`backend::Device`].
#![warn(clippy::unwrap_used)]

#[cfg(doctest)]
mod documents;

pub mod devices;

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

/// Language models: from a GGUF file to text.
pub use orlop_llm as llm;
