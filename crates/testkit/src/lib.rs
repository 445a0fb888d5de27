//! Tools for the tests of every crate: a reference device that computes each op with plain scalar `f64` code, ways to
//! run a graph with and without a memory plan, conformance cases that every device must pass, a guard that watches a
//! device's memory, generated graphs, pseudo-random numbers and a counting allocator.
//!
//! - [`ReferenceDevice`] is an ordinary [`orlop_backend::Device`]. It never fuses, reads every operand whole
//!   before it writes, and rounds only when a result is stored.
//! - [`run_unplanned`] runs a graph on any device with a buffer of its own for each tensor.
//! - [`run_planned`] runs it through an [`orlop_sched::Session`], with the same feeds.
//! - [`Interpreter`] runs a graph on byte vectors, with no device at all.
//! - [`compute`], [`rearrange`] and [`set_rows`] are the ops themselves, as pure functions.
//! - [`conformance`] runs every op on any device and judges the results.
//! - [`check_queue`] sets and gets bytes on a device's queue.
//! - [`guard`] finds steps that write outside their results, and reads of memory that holds no value yet.
//! - [`devices`] has devices with private memory, limits, asynchronous queues and injected faults.
//! - [`Forward`] is a device around another that differs from it in single methods.
//! - [`generate`] makes random graphs and transformer blocks.
//! - [`Random`] is the generator of all pseudo-random test data; [`Choices`] makes choices that property tests shrink.
//! - [`CountingAllocator`] counts allocations and the bytes that a thread holds.
//!
//! ```
//! use std::sync::Arc;
//! use orlop_backend::Device;
//! use orlop_graph::{DType, GraphBuilder};
//! use orlop_testkit::{ReferenceDevice, f32_bytes, run_unplanned};
//!
//! let mut b = GraphBuilder::new();
//! let x = b.input("x", DType::F32, &[3]);
//! let y = b.scale(x, 2.0);
//! let graph = b.build()?;
//! let device: Arc<dyn Device> = ReferenceDevice::new();
//! let outputs = run_unplanned(&device, &graph, &[(x, f32_bytes(&[1.0, 2.0, 3.0]))])?;
//! assert_eq!(outputs.f32s(y)?, [2.0, 4.0, 6.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(clippy::unwrap_used)]

pub mod conformance;
pub mod devices;
pub mod generate;
pub mod guard;

mod choices;
mod counting;
mod device;
mod elements;
mod error;
mod execute;
mod fill;
mod forward;
mod interpreter;
mod ops;
mod planned;
mod program;
mod queue;
mod queue_checks;
mod random;
mod relay;
mod unplanned;

pub use choices::Choices;
pub use counting::CountingAllocator;
pub use device::ReferenceDevice;
pub use elements::{
    Elements, Packed, decode_elements, encode_elements, f32_bytes, f32s, i32_bytes, i64_bytes,
};
pub use error::OpFailure;
pub use forward::{DeviceHooks, Forward, ForwardQueue, QueueHooks};
pub use interpreter::Interpreter;
pub use ops::{RowWrite, compute, rearrange, rearranges, set_rows};
pub use planned::{Feeds, PlannedOptions, kept, run_in, run_planned};
pub use queue_checks::check_queue;
pub use random::Random;
pub use relay::{Disturbance, Relay, RelayCounts};
pub use unplanned::{Observe, RunOutputs, UnplannedOptions, run_unplanned, run_unplanned_with};
