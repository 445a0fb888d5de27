//! Configurable test devices: any device with private memory, limits, asynchronous queues, delays, injected faults and
//! a virtual clock.
//!
//! [`TestDevice`] computes what the device inside it computes, so a graph on several of them must give the same bytes as
//! on one. [`TestDevice::builder`] sets everything else. Faults are injected by [`TestDevice::faults`];
//! [`TestDevice::counters`] shows what was done and what is still allocated.
//!
//! ```
//! use std::sync::Arc;
//! use orlop_backend::Device;
//! use orlop_graph::{DType, GraphBuilder};
//! use orlop_testkit::devices::TestDevice;
//! use orlop_testkit::{ReferenceDevice, f32_bytes, run_unplanned};
//!
//! let gpu = TestDevice::builder(ReferenceDevice::new()).name("gpu0").memory(4096).asynchronous(true).build();
//! let device: Arc<dyn Device> = gpu.clone();
//! let mut b = GraphBuilder::new();
//! let x = b.input("x", DType::F32, &[2]);
//! let y = b.sqr(x);
//! let graph = b.build()?;
//! let outputs = run_unplanned(&device, &graph, &[(x, f32_bytes(&[3.0, -4.0]))])?;
//! assert_eq!(outputs.f32s(y)?, [9.0, 16.0]);
//! assert_eq!(gpu.counters().submits, 1);
//! drop(outputs);
//! assert_eq!(gpu.counters().live_bytes, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod clock;
mod device;
mod event;
mod faults;
mod ledger;
mod memory;
mod program;
mod queue;
mod worker;

pub use builder::TestDeviceBuilder;
pub use clock::VirtualClock;
pub use device::TestDevice;
pub use faults::{FaultKind, FaultPoint, Faults};
pub use ledger::Counters;
