//! Planning: from who uses which memory when to where everything lies. Values in, values out; no memory is touched.
//!
//! - A **usage** ([`Usage`]) lists values (tensors and temporaries; a **view** names its **root**) and steps with what
//!   each reads and writes. It is all that planning knows. Lowered graphs become usages (`lowered`), and so do the graphs
//!   of other engines.
//! - A **trace** is one walk over a usage. It yields the **pieces** of memory with their lifetimes, the **decisions**
//!   ([`Decision`]) which result takes an operand's place, and the sequence of requests.
//! - A **memory plan** ([`MemoryPlan`]) gives each piece a place in an **arena**, in one of the arena's **chunks**.
//!   [`plan_memory`] makes it, [`MemoryPlan::check`] checks it by other means, [`MemoryPlan::fits`] says whether it serves
//!   another usage, and a [`SavedMemoryPlan`] keeps it for another process.
//! - [`plan_within`] meets a capacity that no plan of the steps alone meets: some run again, some values are copied to
//!   other memory and back.
//! - [`reorder`] finds an order of the steps that needs less memory; [`plan_reordered`] plans both orders and keeps the
//!   smaller plan.

mod check;
mod layouts;
mod memory_plan;
mod misfit;
mod plan_memory;
mod reorder;
mod saved_plan;
pub(crate) mod trace;
mod usage;
mod within;

pub use check::Flaw;
pub use layouts::Layouts;
pub use memory_plan::{ArenaOffset, ArenaPlan, MemoryPlan, PeakStorage, PlanOptions, PlannedStorage};
pub use misfit::Misfit;
pub use plan_memory::{plan_as_ggml, plan_like_ggml, plan_memory, plan_memory_until};
pub use reorder::{Reordered, StepOrder, plan_reordered, plan_reordered_until, reorder};
pub use saved_plan::{SavedMemoryPlan, SavedMemoryPlanError};
pub use trace::{Decision, Sharing, Verdict};
pub use usage::{ArenaId, ArenaInfo, Flags, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo};
pub use within::{
    AddedCost, FittedStep, Floor, PlanWithin, ReplayFlaw, StepFacts, floor, plan_within, plan_within_until,
};
