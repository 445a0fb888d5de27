//! Memory planning: assigns offsets to buffers with known lifetimes, so that they share memory.
//!
//! A [`Problem`] is a list of buffers, each with a size, an alignment and the steps at which it is live.
//! [`solve`] assigns each an offset in an arena of one or several chunks and reports the quality of the
//! result; [`verify`] checks any plan independently; [`bound`] is a lower bound on the peak of every plan.
//! Where lifetimes are unknown, [`FreeList`] allocates offsets one by one.
//!
//! The problem is known as static or dynamic storage allocation; see [MiniMalloc] for the state of the art.
//!
//! [MiniMalloc]: https://dl.acm.org/doi/10.1145/3623278.3624752
//!
//! ```
//! use orlop_plan::{BufferSpec, Problem, SolveOptions, bound, solve, verify};
//!
//! // Three layers: each layer's result is live until the next layer has read it.
//! let mut problem = Problem::default();
//! let a = problem.push(BufferSpec::new(4096, 64, 0..2))?;
//! let b = problem.push(BufferSpec::new(1000, 64, 1..3))?;
//! let c = problem.push(BufferSpec::new(4096, 64, 2..4))?;
//!
//! let plan = solve(&problem, &SolveOptions::default())?;
//! assert_eq!(verify(&problem, &plan), Ok(()));
//! assert_eq!(plan.place(a), plan.place(c));
//! assert_ne!(plan.place(a), plan.place(b));
//! assert_eq!(plan.peak, 4096 + 1024); // 1000 bytes, rounded up to the alignment
//! assert_eq!(plan.peak, bound(&problem));
//! # Ok::<(), orlop_plan::PlanError>(())
//! ```
//!
//! All types are plain data, and the planner is deterministic: no clocks, no hash order, no globals. Effort
//! is counted in units of work. Sizes and steps are `u64`; overflow is an error value.
//!
//! The feature `serde` makes problems, plans and options serializable.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod bound;
mod error;
mod free_list;
mod plan;
mod problem;
mod round;
mod saved;
mod signature;
mod solve;
mod strategy;
mod verify;

pub use bound::bound;
pub use error::PlanError;
pub use free_list::{ChunkRule, FreeBlock, FreeList, FreeListError};
pub use plan::Plan;
pub use problem::{BufferId, BufferSpec, ChunkOffset, Problem};
pub use saved::{SavedPlan, SavedPlanError};
pub use signature::{Signature, Signer};
pub use solve::{solve, solve_until};
pub use strategy::{SolveOptions, Strategy, UnknownStrategy};
pub use verify::{Violation, verify};
