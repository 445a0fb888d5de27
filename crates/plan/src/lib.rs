//! Memory planning: where buffers with known lifetimes go, so that little memory serves many.
//!
//! A [`Problem`] is a list of buffers, each with a size, an alignment and the steps at which it is alive.
//! [`solve`] gives each a place in an arena of one or several chunks and says how good that is; [`verify`]
//! checks any plan independently; [`bound`] is what no plan can be below. Where the future is not known,
//! [`FreeList`] hands out offsets one by one.
//!
//! ```
//! use orlop_plan::{Buffer, Options, Problem, bound, solve, verify};
//!
//! // Three layers: each one's result is alive until the next one has read it.
//! let mut problem = Problem::default();
//! let a = problem.push(Buffer::new(4096, 64, 0..2))?;
//! let b = problem.push(Buffer::new(1000, 64, 1..3))?;
//! let c = problem.push(Buffer::new(4096, 64, 2..4))?;
//!
//! let plan = solve(&problem, &Options::default())?;
//! assert_eq!(verify(&problem, &plan), Ok(()));
//! assert_eq!(plan.place(a), plan.place(c));
//! assert_ne!(plan.place(a), plan.place(b));
//! assert_eq!(plan.peak, 4096 + 1024); // 1000 bytes, rounded up to the alignment
//! assert_eq!(plan.peak, bound(&problem));
//! # Ok::<(), orlop_plan::PlanError>(())
//! ```
//!
//! Everything is plain data and equal input gives equal output: no clocks, no hash order, no globals.
//! Effort is counted, not timed. Sizes and steps are `u64`; whatever would not fit is an error value.
//!
//! The feature `serde` makes problems, plans and options serialisable.
#![forbid(unsafe_code)]

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
