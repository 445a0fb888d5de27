//! Placement: a device for every node, with the reason. Pure values.
//!
//! - **Facts** ([`MachineFacts`]) are what is known about a machine: devices, kinds of memory, speeds, and what each device
//!   supports. Placement and schedules are functions of a graph, facts and constraints; no device is touched.
//! - **Constraints** ([`Constraints`]) are what the caller brings: the memory that weights and states lie in
//!   (**pinned**), devices that were chosen (**assigned**), and results to look at (**observed**).
//! - **Rules** ([`place_by_rules`]) decide in order: assignments, data that lies somewhere, neighbours along edges, and
//!   whatever device can run the node. The first that says something decides, and is kept as the
//!   [`PlacementReason`].
//! - **Cost** ([`place_by_cost`]) begins with the rules and moves runs of nodes as long as the estimated time falls.
//! - **Settling** puts views and leaves where what they belong to is.

pub(crate) mod cost;
mod facts;
mod pin;
pub(crate) mod placement;
pub(crate) mod rules;
mod settle;

pub use cost::{CostOptions, place_by_cost};
pub use facts::MachineFacts;
pub use placement::{Constraints, NodePlacement, Placement, PlacementReason, Propagation};
pub use rules::place_by_rules;
