use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use orlop_backend::DeviceError;

use crate::Error;
use crate::sys::{Context as RawContext, DevicePtr, Driver, Event, OUT_OF_MEMORY, Stream};

/// A card, and what became of it.
pub(crate) struct Context {
    pub(crate) driver: Arc<Driver>,
    pub(crate) raw: RawContext,
    device: i32,
    pub(crate) name: Arc<str>,
    /// For what the host writes and fills: work of queues begins only when that has arrived.
    transfer: Stream,
    /// Recorded behind the last small write.
    arrived: Event,
    staging: Mutex<Staging>,
    lost: OnceLock<String>,
}

/// Most bytes of a write that nobody waits for, and how many of them may be under way.
const SMALL: usize = 4 << 10;
const PLACES: usize = 64;
/// Most bytes of a read that goes by way of pinned memory.
const LARGE: usize = 1 << 20;

/// Pinned memory of a fixed size for small transfers.
struct Staging {
    base: *mut u8,
    used: usize,
    arrivals: u64,
}

// SAFETY: the memory is reached only through a locked context.
unsafe impl Send for Staging {}

impl Staging {
    const BYTES: u64 = (PLACES * SMALL + LARGE) as u64;

    fn small(&self, place: usize) -> *mut u8 {
        self.base.wrapping_add(place % PLACES * SMALL)
    }

    fn large(&self) -> *mut u8 {
        self.base.wrapping_add(PLACES * SMALL)
    }
}

impl Context {
    pub(crate) fn new(driver: Arc<Driver>, device: i32, name: &str) -> Result<Arc<Context>, Error> {
        let raw = driver.retain_context(device)?;
        let made = driver
            .set_context(raw)
            .and_then(|()| Ok((driver.stream()?, driver.event()?, driver.allocate_host(Staging::BYTES)?.0)));
        let (transfer, arrived, base) = made.inspect_err(|_| driver.release_context(device))?;
        let staging = Mutex::new(Staging { base, used: 0, arrivals: 0 });
        let lost = OnceLock::new();
        Ok(Arc::new(Context { driver, raw, device, name: name.into(), transfer, arrived, staging, lost }))
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

    /// Writes bytes. Whoever gives work to a stream afterwards lets it wait for them ([`Context::arrivals`]).
    pub(crate) fn write(&self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        let driver = self.enter()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() > SMALL {
            // SAFETY: `write_async` asks that the bytes stay as they are until the stream has come here: that is waited for.
            let given = unsafe { driver.write_async(to, bytes.as_ptr(), bytes.len() as u64, self.transfer) };
            return self.note(given.and_then(|()| driver.sync(self.transfer)));
        }
        if staging.used == PLACES {
            self.note(driver.sync(self.transfer))?;
            staging.used = 0;
        }
        let place = staging.small(staging.used);
        staging.used += 1;
        // SAFETY: `copy_nonoverlapping` asks for as many bytes at both: a place has room for a small write, is this
        // context's alone, and was last read before the stream was waited for.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        // SAFETY: as above: the place is not written again before the stream was waited for.
        let given = unsafe { driver.write_async(to, place, bytes.len() as u64, self.transfer) };
        self.note(given.and_then(|()| driver.record(self.arrived, self.transfer)))?;
        staging.arrivals += 1;
        Ok(())
    }

    /// Lets a stream wait for what was written since it last did: `seen` are the writes that it knows of.
    pub(crate) fn await_arrivals(&self, stream: Stream, seen: &mut u64) -> Result<(), DeviceError> {
        let staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if staging.arrivals == *seen {
            return Ok(());
        }
        *seen = staging.arrivals;
        self.note(self.enter()?.wait(stream, self.arrived))
    }

    /// Reads bytes, behind what was written.
    pub(crate) fn read(&self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let driver = self.enter()?;
        let staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let direct = bytes.len() > LARGE;
        let to = if direct { bytes.as_mut_ptr() } else { staging.large() };
        // SAFETY: `read_async` asks that nobody else touches the bytes until the stream has come here: they are this
        // function's, or this context's and it is locked; the stream is waited for.
        let given = unsafe { driver.read_async(to, from, bytes.len() as u64, self.transfer) };
        self.note(given.and_then(|()| driver.sync(self.transfer)))?;
        if !direct {
            // SAFETY: as in `write`.
            unsafe { std::ptr::copy_nonoverlapping(to, bytes.as_mut_ptr(), bytes.len()) };
        }
        Ok(())
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
        self.driver.free_host(self.staging.get_mut().unwrap_or_else(PoisonError::into_inner).base);
        self.driver.destroy_event(self.arrived);
        self.driver.destroy_stream(self.transfer);
        self.driver.release_context(self.device);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}
