//! placeholder
mod arena;
mod check;
mod error;
mod externals;
mod graph_allocator;
mod graph_usage;
mod memory_plan;
mod observe;
mod trace;
mod usage;

pub use arena::{Grown, Growth};
pub use check::Flaw;
pub use error::Error;
pub use externals::Externals;
pub use graph_allocator::{Allocation, Assignment, GraphAllocator};
pub use memory_plan::{
    ArenaPlan, MemoryPlan, Misfit, PeakStorage, Place, PlanOptions, Storage, plan_as_ggml, plan_memory,
};
pub use observe::{Event, Observer};
pub use trace::{Decision, Sharing, Verdict};
pub use usage::{ArenaId, ArenaInfo, Flags, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo};
