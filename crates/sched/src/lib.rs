//! One graph over the devices of a machine: one or many.
//!
//! The way of a graph, each step a plain value made from the one before:
//!
//! ```text
//! Graph, Machine ──► Placement ──► Schedule ──► Planned ──► Session
//!                    place/        schedule/    planned/    session/
//! ```
//!
//! A [`Placement`] says which device runs each node, and why. A [`Schedule`] cuts that into splits, with the transfers
//! between them and who waits for whom. A [`Planned`] graph has the steps of each split and a memory plan for each arena.
//! A [`Session`] owns memory and queues: it binds planned graphs ([`Session::adopt`]), or does all of it
//! ([`Session::prepare`]), sets inputs, runs, and reads results.
#![warn(clippy::unwrap_used)]

mod calibrate;
mod chain;
mod described;
mod error;
mod machine;
mod place;
mod planned;
mod schedule;
mod session;
mod speeds;

pub use calibrate::{CalibrateOptions, calibrate, calibrate_by};
pub use chain::{Alternative, ChainAssignment, ChainPart, ChainProblem, PartCost};
pub use described::{DeviceDescription, FlopsDescription, LinkDescription, MachineDescription};
pub use error::Error;
pub use machine::{DeviceId, Machine};
pub use place::{
    Constraints, CostOptions, MachineFacts, NodePlacement, Placement, PlacementReason, Propagation,
    place_by_cost, place_by_rules,
};
pub use planned::Planned;
pub use planned::arena_steps::{ArenaStep, ValueOrigin};
pub use planned::fit::largest_fitting;
pub use planned::observer::PlanObserver;
pub use planned::prediction::{Expense, Limit, Prediction};
pub use schedule::{
    Command, Point, Schedule, Split, SplitCommands, SplitId, Transfer, TransferId, estimate, split,
};
pub use session::flight::RunId;
pub use session::race::Race;
pub use session::timeline::{DeviceTime, MemorySample, SpanWork, Timeline, TimelineSpan};
pub use session::{PlanId, Session, SessionOptions, constraints};
pub use speeds::{AttentionSpeed, ChosenMatrices, DeviceSpeeds, ExpectedData, PassSpeed, ProductSpeed};
