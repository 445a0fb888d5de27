//! Faults that a test injects.

use std::sync::Arc;

use orlop_backend::DeviceError;

use super::ledger::Ledger;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultPoint {
    /// A buffer is allocated.
    Allocation,
    /// A queue copies a tensor.
    Copy,
    /// A queue runs a program.
    Submit,
}

/// How something fails.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// With [`DeviceError::OutOfMemory`], once; it works the next time.
    OutOfMemory,
    /// With an error of the caller's choice, once.
    Error(DeviceError),
    /// With [`DeviceError::Lost`], and the device is lost for good.
    Lost,
}

/// Injects faults into a device. Clones are one handle, and it may outlive the device.
#[derive(Clone, Debug)]
pub struct Faults(pub(super) Arc<Ledger>);

impl Faults {
    /// Makes the `nth` piece of work of a kind fail, counted from 1, the next. Failed work has no other effect. Several
    /// faults may be pending. With 0, nothing happens.
    ///
    /// Copies and programs count when a queue comes to them; those that are skipped after a failure do not.
    pub fn fail(&self, work: FaultPoint, nth: u64, failure: FaultKind) {
        if nth > 0 {
            self.0.arm(work, nth, failure);
        }
    }

    /// Loses the device now.
    pub fn lose(&self) {
        self.0.lose();
    }

    /// Faults that are still pending.
    pub fn open(&self) -> usize {
        self.0.armed()
    }

    /// Removes all pending faults. A lost device stays lost.
    pub fn clear(&self) {
        self.0.disarm();
    }
}
