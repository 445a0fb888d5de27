//! Memory for tensor graphs: planned before anything runs, and bound to buffers of any device.
//!
//! The way is always the same. A [`Usage`] says which step uses which memory.
//! [`plan_memory`] decides what is done in place and where everything lies, and returns a [`MemoryPlan`], a
//! plain value that says how good it is. Then something binds it: a [`GraphAllocator`] over buffers of several
//! types, or a session (`orlop-sched`) that also runs the graph.
//!
//! Without a graph there are a [`LinearAllocator`] over one buffer, a [`TensorAllocator`] that gives ranges back,
//! a [`RegionAllocator`] that measures graphs and places them in one region, and a [`TensorSet`] over as many
//! buffers as a limit demands.
//!
//! Planning stands by itself: without the feature `buffers` (on by default) there are usages and plans, and no device.
#![warn(clippy::unwrap_used)]

#[cfg(feature = "buffers")]
mod buffers;
mod error;
#[cfg(feature = "buffers")]
mod lowered;
mod planning;

#[cfg(feature = "buffers")]
pub use buffers::{
    AllocEvent, Allocation, Arenas, Assignment, Externals, GraphAllocator, Grown, Growth, LinearAllocator,
    Observer, RegionAllocator, SetPlace, SetTensor, TensorAllocator, TensorSet,
};
pub use error::Error;
#[cfg(feature = "buffers")]
pub use lowered::{Held, Home, StepSequence, UsageBuilder};
pub use planning::{
    AddedCost, ArenaId, ArenaInfo, ArenaOffset, ArenaPlan, Decision, FittedStep, Flags, Flaw, Floor, Layouts,
    MemoryPlan, Misfit, OverwritePair, PeakStorage, PlanOptions, PlanWithin, PlannedStorage, Reordered,
    ReplayFlaw, SavedMemoryPlan, SavedMemoryPlanError, Sharing, StepFacts, StepOrder, StepView, Unread,
    Usage, ValueId, ValueInfo, Verdict, floor, plan_as_ggml, plan_like_ggml, plan_memory, plan_memory_until,
    plan_reordered, plan_reordered_until, plan_within, plan_within_until, reorder,
};
