//! The conformance set: small graphs over every op, run on any device and judged by the reference.
//!
//! Each case runs without a plan and through an [`orlop_sched::Session`] with sharing on. Both must agree with
//! the reference within the case's [`Tolerance`], and with each other bit for bit. Where the device has memory
//! of its own for weights and takes the case's weights there, a third run uses it. Refused cases count as
//! unsupported; accepted ones must be computed.
//!
//! ```
//! use std::sync::Arc;
//! use orlop_backend::Device;
//! use orlop_testkit::{ReferenceDevice, conformance};
//!
//! let device: Arc<dyn Device> = ReferenceDevice::new();
//! let case = &conformance::cases()[0];
//! let outcome = conformance::run(&device, case, &conformance::ConformanceOptions::default());
//! assert!(outcome.is_passed(), "{}: {outcome:?}", case.name());
//! ```

mod case;
mod cases;
mod judge;
mod outcome;
mod page;
mod report;
mod run;
mod tolerance;

pub use case::Case;
pub use cases::cases;
pub use outcome::{CaseFailure, Outcome, Way};
pub use page::check_ops_page;
pub use report::{Report, ReportRow, acceptance, report};
pub use run::{ConformanceOptions, run};
pub use tolerance::Tolerance;
