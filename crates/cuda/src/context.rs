//! A GPU in use: its context, the transfers of the host, and whether it was lost.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use orlop_backend::DeviceError;

use crate::Error;
use crate::sys::{DevicePtr, Driver, Event, OUT_OF_MEMORY, PinnedMemory, PrimaryContext, Stream};

/// A GPU.
pub(crate) struct Context {
    primary: Arc<PrimaryContext>,
    pub(crate) name: Arc<str>,
    /// For the host's writes, reads and fills: queues let their work wait for what is under way here.
    transfer: Stream,
    /// Recorded behind the last transfer that the host did not wait for.
    arrived: Event,
    staging: Mutex<TransferStaging>,
    lost: OnceLock<String>,
}

/// Writes of at most this many bytes are copied and return at once; at most this many are under way.
const SMALL: usize = 4 << 10;
const PLACES: usize = 64;
/// Reads of at most this many bytes go through pinned memory.
const LARGE: usize = 1 << 20;

/// Pinned memory of a fixed size for small transfers.
pub(crate) struct TransferStaging {
    memory: PinnedMemory,
    used: usize,
    arrivals: u64,
}

impl TransferStaging {
    pub(crate) const BYTES: u64 = (PLACES * SMALL + LARGE) as u64;

    fn small(&self, place: usize) -> *mut u8 {
        self.memory.host().as_ptr().wrapping_add(place % PLACES * SMALL)
    }

    fn large(&self) -> *mut u8 {
        self.memory.host().as_ptr().wrapping_add(PLACES * SMALL)
    }
}

impl Context {
    pub(crate) fn new(driver: &Arc<Driver>, device: i32, name: &str) -> Result<Arc<Context>, Error> {
        let primary = PrimaryContext::retain(driver, device)?;
        primary.make_current()?;
        let memory = PinnedMemory::allocate(&primary, TransferStaging::BYTES)?;
        Ok(Arc::new(Context {
            name: name.into(),
            transfer: Stream::new(&primary)?,
            arrived: Event::new(&primary)?,
            staging: Mutex::new(TransferStaging { memory, used: 0, arrivals: 0 }),
            lost: OnceLock::new(),
            primary,
        }))
    }

    /// The context, current on this thread.
    pub(crate) fn enter(&self) -> Result<&Arc<PrimaryContext>, DeviceError> {
        if let Some(reason) = self.lost.get() {
            return Err(self.lost_because(reason));
        }
        self.note(self.primary.make_current())?;
        Ok(&self.primary)
    }

    /// Passes a result of the driver on. After an error other than want of memory, the GPU counts as lost.
    pub(crate) fn note<T>(&self, result: Result<T, Error>) -> Result<T, DeviceError> {
        result.map_err(|error| {
            let reason = self.lost.get_or_init(|| error.to_string());
            self.lost_because(reason)
        })
    }

    /// As [`Context::note`], for calls that allocate memory.
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

    /// Writes bytes. Small writes may still be under way when this returns: streams that are given work afterwards wait for
    /// them ([`Context::await_arrivals`]), and memory is freed behind them ([`Context::await_transfers`]).
    ///
    /// # Safety
    /// `to` is the address of as many bytes of this GPU's memory, which no other work touches until they have arrived.
    pub(crate) unsafe fn write(&self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.enter()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() > SMALL {
            // SAFETY: `Stream::write` asks that the bytes stay as they are until the stream has passed: that is waited for
            // below. The rest is this function's contract.
            let given = unsafe { self.transfer.write(to, bytes.as_ptr(), bytes.len() as u64) };
            return self.note(given.and_then(|()| self.transfer.sync()));
        }
        if staging.used == PLACES {
            self.note(self.transfer.sync())?;
            staging.used = 0;
        }
        let place = staging.small(staging.used);
        staging.used += 1;
        // SAFETY: `copy_nonoverlapping` asks for as many bytes at both, apart: a place has room for a small write, is reached
        // under this lock alone, and was last read before the stream was waited for.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        // SAFETY: `Stream::write` asks that the place stays as it is until the stream has passed: it is not used again before
        // the stream was waited for, nor freed (`Drop`). The rest is this function's contract.
        let given = unsafe { self.transfer.write(to, place, bytes.len() as u64) };
        self.note(given.and_then(|()| self.arrived.record(&self.transfer)))?;
        staging.arrivals += 1;
        Ok(())
    }

    /// Gives work to a stream: a queue's own, or the one of the host's transfers. There it is ordered as small writes are.
    pub(crate) fn give(
        &self,
        own: Option<&Stream>,
        work: impl FnOnce(&Stream) -> Result<(), Error>,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        if let Some(stream) = own {
            return self.note(work(stream));
        }
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        self.note(work(&self.transfer).and_then(|()| self.arrived.record(&self.transfer)))?;
        staging.arrivals += 1;
        Ok(())
    }

    /// Lets a stream wait for what was written since it last did: `seen` counts the writes that it has waited for.
    pub(crate) fn await_arrivals(&self, stream: &Stream, seen: &mut u64) -> Result<(), DeviceError> {
        let staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if staging.arrivals == *seen {
            return Ok(());
        }
        *seen = staging.arrivals;
        self.enter()?;
        self.note(stream.wait(&self.arrived))
    }

    /// Waits on the host until all that it wrote has arrived.
    pub(crate) fn await_transfers(&self) -> Result<(), DeviceError> {
        self.enter()?;
        self.note(self.transfer.sync())
    }

    /// Reads bytes, behind what was written.
    ///
    /// # Safety
    /// `from` is the address of as many bytes of this GPU's memory, which no other work writes meanwhile.
    pub(crate) unsafe fn read(&self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.enter()?;
        let staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let direct = bytes.len() > LARGE;
        let to = if direct { bytes.as_mut_ptr() } else { staging.large() };
        // SAFETY: `Stream::read` asks that the bytes are not touched until the stream has passed: they are borrowed, or under
        // this lock, and the stream is waited for below. The rest is this function's contract.
        let given = unsafe { self.transfer.read(to, from, bytes.len() as u64) };
        self.note(given.and_then(|()| self.transfer.sync()))?;
        if !direct {
            // SAFETY: `copy_nonoverlapping` asks for as many bytes at both, apart: the place for large reads has room, is
            // reached under this lock alone, and the stream has passed the copy to it.
            unsafe { std::ptr::copy_nonoverlapping(to, bytes.as_mut_ptr(), bytes.len()) };
        }
        Ok(())
    }

    /// Sets bytes to one value, and returns when they are.
    ///
    /// # Safety
    /// `at` is the address of as many bytes of this GPU's memory, which no other work touches meanwhile.
    pub(crate) unsafe fn fill(&self, at: DevicePtr, value: u8, bytes: u64) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: `Stream::fill` asks for this function's contract until the stream has passed, which is waited for below.
        let given = unsafe { self.transfer.fill(at, value, bytes) };
        self.note(given.and_then(|()| self.transfer.sync()))
    }

    pub(crate) fn primary(&self) -> &Arc<PrimaryContext> {
        &self.primary
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
        // Staging memory is freed behind the writes that read it.
        let _ = self.await_transfers();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}
