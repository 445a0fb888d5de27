//! Memory for tensor graphs: planned before anything runs, and bound to buffers of any device.
//!
//! The way is always the same. Whoever knows a graph says who uses which memory when ([`Usage`]).
//! [`plan_memory`] decides what is done in place and where everything lies, and returns a [`MemoryPlan`], a
//! plain value that says how good it is. Then something binds it: a [`GraphAllocator`] over buffers of several
//! types, or a session (`orlop-sched`) that also runs the graph.
//!
//! Without a graph there are a [`LinearAllocator`] over one buffer, a [`TensorAllocator`] that gives ranges back,
//! a [`RegionAllocator`] that measures graphs and places them in one region, and a [`TensorSet`] over as many
//! buffers as a limit demands.

mod arena;
mod check;
mod error;
mod externals;
mod graph_allocator;
mod graph_in_region;
mod graph_usage;
mod layouts;
mod linear;
mod memory_plan;
mod observe;
mod reorder;
mod saved_plan;
mod tensor_allocator;
mod tensor_set;
mod trace;
mod usage;

pub use arena::{Arenas, Grown, Growth};
pub use check::Flaw;
pub use error::Error;
pub use externals::Externals;
pub use graph_allocator::{Allocation, Assignment, GraphAllocator};
pub use graph_in_region::RegionAllocator;
pub use graph_usage::Held;
pub use layouts::Layouts;
pub use linear::LinearAllocator;
pub use memory_plan::{
    ArenaOffset, ArenaPlan, MemoryPlan, Misfit, PeakStorage, PlanOptions, PlannedStorage, plan_as_ggml,
    plan_like_ggml, plan_memory, plan_memory_until,
};
pub use observe::{AllocEvent, Observer};
pub use reorder::{Reordered, StepOrder, StepSequence, plan_reordered, plan_reordered_until, reorder};
pub use saved_plan::{SavedMemoryPlan, SavedMemoryPlanError};
pub use tensor_allocator::TensorAllocator;
pub use tensor_set::{SetPlace, SetTensor, TensorSet};
pub use trace::{Decision, Sharing, Verdict};
pub use usage::{ArenaId, ArenaInfo, Flags, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo};
