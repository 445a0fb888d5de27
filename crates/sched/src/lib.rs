//! One graph over many devices.
//!
//! A graph and a [`Machine`] become a [`Placement`] (a device and a reason for every node), a placement becomes a
//! [`Schedule`] (splits, copies, and who waits for whom); both are plain values. A [`Session`] lowers the splits, plans
//! each device's arena on the steps of its own queue, and runs them.

mod arena_steps;
mod budget;
mod calibrate;
mod carry;
mod compile;
mod cost;
mod error;
mod estimate;
mod fit;
mod flight;
mod inputs;
mod lost;
mod machine;
mod marks;
mod memory;
mod observer;
mod order;
mod passes;
mod pin;
mod placement;
mod planned;
mod plans;
mod prepared;
mod race;
mod resident;
mod room;
mod run;
mod session;
mod settle;
mod signature;
mod split;
mod timeline;
mod transfer;
mod typed;

pub use arena_steps::{ArenaStep, ValueOrigin};
pub use calibrate::{Calibration, calibrate};
pub use cost::{CostOptions, place_by_cost};
pub use error::Error;
pub use estimate::{estimate, node_seconds};
pub use fit::largest_fitting;
pub use flight::RunId;
pub use machine::{DeviceId, Machine};
pub use observer::PlanObserver;
pub use passes::place_by_rules;
pub use placement::{Constraints, NodePlacement, Placement, PlacementReason, Propagation};
pub use planned::Planned;
pub use race::Race;
pub use session::{PlanId, Session, SessionOptions, constraints};
pub use split::{Schedule, Split, Transfer, split};
pub use timeline::{DeviceTime, MemorySample, SpanWork, Timeline, TimelineSpan};
