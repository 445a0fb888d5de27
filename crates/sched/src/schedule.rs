//! Schedules: a placed graph as work for queues. Pure values.
//!
//! - A **split** ([`Split`]) is a run of nodes that one device computes. A new one begins where the next node runs
//!   elsewhere, behind a result that is observed, and at a node that reads an offloaded weight.
//! - A **transfer** ([`Transfer`]) copies bytes of a storage to a device that cannot read them where they lie: once for
//!   each version of the bytes. The split that needs it first makes it (`transfers`), and later splits of the device read it,
//!   too (`reads_transfer`). Of weights, a transfer is **resident** if its copy stays on the device between runs, and
//!   **offloaded** if every run transfers it; then the split before does that, while it computes.
//! - A split **waits** for the splits of other devices whose results it needs, and for nothing else. Transfers that need only
//!   the first few of these waits are made before the rest ([`Transfer::after`]).
//! - **Commands** ([`Schedule::commands`]) are a schedule in the order of submission: wait, transfer, compute, record. Running,
//!   checking for races, estimating and planning memory all iterate over them.
//!
//! [`split()`] makes a schedule of a placement, and [`estimate()`] says how long it would take.

mod commands;
pub(crate) mod estimate;
mod ids;
pub(crate) mod split;
mod table;

pub use commands::{Command, Point, SplitCommands};
pub use estimate::estimate;
pub use ids::{SplitId, TransferId};
pub use split::{Schedule, Split, Transfer, split};
