use std::fmt;
use std::sync::{Arc, OnceLock};

use orlop_backend::DeviceError;

use crate::Error;
use crate::sys::{Context as RawContext, Driver, OUT_OF_MEMORY};

/// A card, and what became of it.
pub(crate) struct Context {
    pub(crate) driver: Arc<Driver>,
    pub(crate) raw: RawContext,
    device: i32,
    pub(crate) name: Arc<str>,
    lost: OnceLock<String>,
}

impl Context {
    pub(crate) fn new(driver: Arc<Driver>, device: i32, name: &str) -> Result<Arc<Context>, Error> {
        let raw = driver.retain_context(device)?;
        Ok(Arc::new(Context { driver, raw, device, name: name.into(), lost: OnceLock::new() }))
    }

    /// The driver, with this card's context current on this thread.
    pub(crate) fn enter(&self) -> Result<&Driver, DeviceError> {
        if let Some(reason) = self.lost.get() {
            return Err(self.lost_because(reason));
        }
        self.note(self.driver.set_context(self.raw))?;
        Ok(&self.driver)
    }

    /// Passes what the driver said on. Whatever it refuses but memory, the card is lost with it.
    pub(crate) fn note<T>(&self, result: Result<T, Error>) -> Result<T, DeviceError> {
        result.map_err(|error| {
            let reason = self.lost.get_or_init(|| error.to_string());
            self.lost_because(reason)
        })
    }

    /// As [`Context::note`], for calls that ask for memory.
    pub(crate) fn note_memory<T>(
        &self,
        result: Result<T, Error>,
        buffer_type: &str,
        bytes: u64,
    ) -> Result<T, DeviceError> {
        match result {
            Err(Error::Driver { code: OUT_OF_MEMORY, .. }) => {
                Err(DeviceError::OutOfMemory { buffer_type: buffer_type.to_owned(), bytes })
            }
            other => self.note(other),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    fn lost_because(&self, reason: &str) -> DeviceError {
        DeviceError::Lost { device: self.name.to_string(), reason: reason.to_owned() }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.driver.release_context(self.device);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}
