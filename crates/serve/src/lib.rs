//! Schedules requests to a language model: which sequences a step of the engine feeds, and who gets the pages of its KV cache.
//!
//! - A [`PrefixTree`] holds the pages of running and of finished sequences, so that a prefix which several requests share is
//!   computed and stored once ([RadixAttention](https://arxiv.org/abs/2312.07104)).
//! - A request is admitted when the pages that it was promised can be had. Requests of moderate length are promised all they
//!   may need; long ones grow page by page, and are parked when no page is left. No request fails because of another.
//! - Prompts are processed in chunks beside the tokens of running requests
//!   ([Sarathi](https://arxiv.org/abs/2308.16369)); measured speeds bound the time of a step.
//! - An engine may draft tokens for steps without prompt tokens: such a step verifies the drafts of all its sequences. No page is
//!   taken for a draft that the request was not promised.
//!
//! The crate has no clock and no threads: [`Scheduler::step`] is told how long the engine took, so equal input gives equal
//! decisions. The engine is a [trait](PagedEngine).
#![warn(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod admission;
mod engine;
mod pages;
mod request;
mod residency;
mod scheduler;
mod snapshot;
mod speed;
mod step;
mod suspended;
mod tree;

pub use engine::{DraftText, Limits, PagedEngine, StepPart, StepRow};
pub use request::{Flow, Request, RequestEnd, RequestId, RequestUsage, Submission};
pub use residency::{ModelMove, ModelUse};
pub use scheduler::{Refused, Scheduler, SchedulerCounts};
pub use snapshot::{PageUse, QueuedView, RunningView, Snapshot, WaitReason};
pub use step::{Rows, StepReport};
pub use suspended::Suspended;
pub use tree::PrefixTree;
