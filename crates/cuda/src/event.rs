//! Points in a queue's work.

use std::any::Any;
use std::sync::Arc;

use orlop_backend::{DeviceError, Event};

use crate::context::Context;
use crate::queue::PendingErrors;
use crate::sys::Event as RawEvent;

/// A point in a stream's work.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: RawEvent,
    /// What its queue had to do until then.
    pub(crate) pending: Arc<PendingErrors>,
}

impl Event for CudaEvent {
    fn is_done(&self) -> bool {
        // A lost GPU does no more work.
        self.context.enter().map_or(true, |_| self.context.note(self.raw.is_passed()).unwrap_or(true))
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.context.enter()?;
        self.context.note(self.raw.sync())?;
        self.pending.first_error()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
