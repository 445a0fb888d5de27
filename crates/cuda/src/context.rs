use std::fmt;
use std::sync::{Arc, OnceLock};

use orlop_backend::DeviceError;

use crate::Error;
use crate::sys::{Context as RawContext, DevicePtr, Driver, OUT_OF_MEMORY, Stream};

/// A card, and what became of it.
pub(crate) struct Context {
    pub(crate) driver: Arc<Driver>,
    pub(crate) raw: RawContext,
    device: i32,
    pub(crate) name: Arc<str>,
    /// For what the host writes and fills: work of queues begins only when that has arrived.
    transfer: Stream,
    lost: OnceLock<String>,
}

impl Context {
    pub(crate) fn new(driver: Arc<Driver>, device: i32, name: &str) -> Result<Arc<Context>, Error> {
        let raw = driver.retain_context(device)?;
        let transfer = driver.set_context(raw).and_then(|()| driver.stream());
        let transfer = transfer.inspect_err(|_| driver.release_context(device))?;
        Ok(Arc::new(Context { driver, raw, device, name: name.into(), transfer, lost: OnceLock::new() }))
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

    /// Writes bytes, and returns when they are there.
    pub(crate) fn write(&self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        let driver = self.enter()?;
        // SAFETY: `write_async` asks that the bytes stay as they are until the stream has come here, which is waited for.
        let given = unsafe { driver.write_async(to, bytes.as_ptr(), bytes.len() as u64, self.transfer) };
        self.note(given.and_then(|()| driver.sync(self.transfer)))
    }

    /// Sets bytes to one value, and returns when they are.
    pub(crate) fn fill(&self, at: DevicePtr, value: u8, bytes: u64) -> Result<(), DeviceError> {
        let driver = self.enter()?;
        let given = driver.fill_async(at, value, bytes, self.transfer);
        self.note(given.and_then(|()| driver.sync(self.transfer)))
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
        self.driver.destroy_stream(self.transfer);
        self.driver.release_context(self.device);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}
