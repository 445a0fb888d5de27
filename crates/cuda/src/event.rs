use std::any::Any;
use std::sync::Arc;

use orlop_backend::{DeviceError, Event};

use crate::context::Context;
use crate::queue::Pending;
use crate::sys::Event as RawEvent;

/// A point in a stream's work.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: RawEvent,
    /// What its queue had to do until then.
    pub(crate) pending: Arc<Pending>,
}

impl Event for CudaEvent {
    fn is_done(&self) -> bool {
        // A lost card does nothing any more.
        self.context
            .enter()
            .map_or(true, |driver| self.context.note(driver.is_passed(self.raw)).unwrap_or(true))
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let driver = self.context.enter()?;
        self.context.note(driver.sync_event(self.raw))?;
        self.pending.first_mark()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.enter() {
            driver.destroy_event(self.raw);
        }
    }
}
