//! What became of a case on a device.

use std::fmt;

use orlop_backend::{DeviceError, Reason};
use orlop_sched::Error;

use crate::OpFailure;

/// What became of a case on a device.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Every run agrees with the reference.
    Passed {
        /// The largest normalised mean squared error.
        error: f64,
    },
    /// The device said beforehand that it does not run one of the nodes.
    Unsupported {
        /// That node's op.
        op: String,
        /// Why not.
        reason: Reason,
    },
    /// Something is wrong.
    Failed(CaseFailure),
}

impl Outcome {
    /// Whether the case passed.
    pub fn is_passed(&self) -> bool {
        matches!(self, Outcome::Passed { .. })
    }
}

/// How a case was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// A buffer of its own for every tensor.
    Unplanned,
    /// Through a session, sharing on.
    Planned,
    /// Through a session, weights in memory that the device has for them.
    Repacked,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Unplanned => "unplanned",
            Way::Planned => "planned",
            Way::Repacked => "with repacked weights",
        })
    }
}

/// Why a case failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaseFailure {
    /// The reference does not run the case: the fault is the table's.
    #[error("the reference does not run this")]
    Reference(#[source] DeviceError),
    /// A leaf of the case has no contents: the fault is the table's.
    #[error("a leaf cannot be filled")]
    Feeds(#[source] OpFailure),
    /// The device accepted every node and then did not run them.
    #[error("accepted and then not run, {way}")]
    NotRun {
        /// How it was run.
        way: Way,
        /// What the device or the session said.
        #[source]
        source: Box<Error>,
    },
    /// A result differs from the reference by more than it may.
    #[error("{way}: `{tensor}` has an error of {error:.3e}, at most {limit:.3e} is allowed")]
    Inexact {
        /// How it was run.
        way: Way,
        /// The result's name.
        tensor: String,
        /// The normalised mean squared error; infinite where infinities and NaNs are not the reference's.
        error: f64,
        /// The largest that passes.
        limit: f64,
    },
    /// A result that must be equal to the reference is not.
    #[error("{way}: element {element} of `{tensor}` is {found}, not {expected}")]
    Unequal {
        /// How it was run.
        way: Way,
        /// The result's name.
        tensor: String,
        /// The first element that differs.
        element: usize,
        /// What the device computed.
        found: f64,
        /// What the reference computed.
        expected: f64,
    },
    /// The planned and the unplanned run differ.
    #[error("`{tensor}` differs between the planned and the unplanned run at byte {byte}")]
    PlanMatters {
        /// The result's name.
        tensor: String,
        /// The first byte that differs, counted without gaps.
        byte: usize,
    },
}
