//! Queues of work, the programs that they run, and points in their work.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use orlop_graph::AccessKind;

use crate::copy::host_memory;
use crate::{Buffer, Claims, DeviceError, StoredTensor, copy_claimed};

/// Work on one device, done in the order it was given.
///
/// A queue may run beside the host. It keeps the claims it was given with a piece of work until that work is done. A queue
/// whose work is done when [`Queue::submit`] returns implements that alone: the other methods have defaults for it.
pub trait Queue: Send + fmt::Debug {
    /// Runs a program once.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`] for another device's program, [`DeviceError::NotClaimed`] if `claims` leave out
    /// a buffer that it touches, and what the run itself meets; a queue beside the host reports that at
    /// [`Queue::sync`].
    ///
    /// # Safety
    /// Work given to other queues under the same claims must not touch bytes that this program writes, or
    /// write bytes that it touches, unless an event orders the two. The places that the program was compiled
    /// for must be such that a step's result lies on nothing that is still needed, and on an operand of its own
    /// only where the step may overwrite it; a checked memory plan is.
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError>;

    /// Copies a tensor's elements. The destination is this queue's device's, or the host's.
    ///
    /// # Errors
    /// [`DeviceError::LayoutMismatch`], [`DeviceError::NotClaimed`], and what the copy itself meets.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn copy(
        &mut self,
        from: &StoredTensor,
        to: &StoredTensor,
        claims: &Claims,
    ) -> Result<(), DeviceError> {
        // SAFETY: `lend` asks that conflicting uses of the run's claims are ordered: `copy`'s contract.
        let read = unsafe { claims.lend(&*from.slot().buffer, AccessKind::Read) }?;
        // SAFETY: `lend` asks that conflicting uses of the run's claims are ordered: `copy`'s contract.
        let write = unsafe { claims.lend(&*to.slot().buffer, AccessKind::Write) }?;
        copy_claimed(from, to, [&read, &write]).map(|_| ())
    }

    /// Writes bytes of the host at an offset of a tensor, behind the work given so far; later work sees them. The queue copies
    /// the bytes, which the caller can change at once. The event is done when they have arrived.
    ///
    /// This is safe beside any other work: the buffer is claimed, or this queue's own work holds it and nothing else has a
    /// clone of those claims. A device that works beside the host copies through staging memory of a fixed size, without
    /// waiting for the device as long as the bytes fit there. The default ([`set_unstaged`]) copies at once, and waits for
    /// this queue's work if that holds the buffer.
    ///
    /// # Errors
    /// As [`StoredTensor::set`]: [`DeviceError::Busy`] if something other than this queue's work holds the buffer.
    fn set(&mut self, to: &StoredTensor, offset: u64, bytes: &[u8]) -> Result<Arc<dyn Event>, DeviceError> {
        set_unstaged(self, to, offset, bytes)
    }

    /// Reads bytes at an offset of a tensor, behind the work given so far. The queue owns the memory that they arrive in until
    /// the caller takes them.
    ///
    /// Claims and staging memory are as for [`Queue::set`], and so is the default ([`get_unstaged`]).
    ///
    /// # Errors
    /// As [`StoredTensor::get`]: [`DeviceError::Busy`] if something other than this queue's work writes the buffer.
    fn get(&mut self, from: &StoredTensor, offset: u64, bytes: u64) -> Result<PendingRead, DeviceError> {
        get_unstaged(self, from, offset, bytes)
    }

    /// An event that is done when all work given so far is.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        // One for all, so that a run on such queues allocates nothing.
        static DONE: OnceLock<Arc<dyn Event>> = OnceLock::new();
        Ok(Arc::clone(DONE.get_or_init(|| Arc::new(Done))))
    }

    /// Lets later work wait for an event of any queue.
    ///
    /// # Errors
    /// [`DeviceError::Lost`], and the error of the work waited for.
    fn wait(&mut self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        event.wait()
    }

    /// Waits until all work given so far is done.
    ///
    /// # Errors
    /// The first error that the work met; the queue can be used again.
    fn sync(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// [`Queue::set`] without staging memory.
///
/// # Errors
/// As [`Queue::set`].
pub fn set_unstaged<Q: Queue + ?Sized>(
    queue: &mut Q,
    to: &StoredTensor,
    offset: u64,
    bytes: &[u8],
) -> Result<Arc<dyn Event>, DeviceError> {
    if let Err(error) = to.set(offset, bytes) {
        behind_own_work(queue, error)?;
        to.set(offset, bytes)?;
    }
    queue.record()
}

/// [`Queue::get`] without staging memory.
///
/// # Errors
/// As [`Queue::get`].
pub fn get_unstaged<Q: Queue + ?Sized>(
    queue: &mut Q,
    from: &StoredTensor,
    offset: u64,
    bytes: u64,
) -> Result<PendingRead, DeviceError> {
    // Before memory is allocated for it.
    from.check(offset, Some(bytes))?;
    let mut read = host_memory(bytes)?;
    if let Err(error) = from.get(offset, &mut read) {
        behind_own_work(queue, error)?;
        from.get(offset, &mut read)?;
    }
    Ok(PendingRead::new(queue.record()?, Arc::new(read)))
}

/// Waits for a queue's work if that may be what keeps a buffer busy; other errors are passed on.
fn behind_own_work<Q: Queue + ?Sized>(queue: &mut Q, error: DeviceError) -> Result<(), DeviceError> {
    match error {
        DeviceError::Busy { .. } => queue.sync(),
        other => Err(other),
    }
}

/// Bytes on their way from a device to the host.
#[derive(Clone)]
pub struct PendingRead {
    arrived: Arc<dyn Event>,
    bytes: Arc<dyn ReadBytes>,
}

/// Where the bytes of a [`PendingRead`] are.
pub trait ReadBytes: Send + Sync {
    /// How many.
    fn bytes(&self) -> u64;

    /// Copies them to memory of that length. The read's event is done.
    ///
    /// # Errors
    /// What the device met on the way.
    fn copy_to(&self, to: &mut [u8]) -> Result<(), DeviceError>;
}

impl ReadBytes for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn copy_to(&self, to: &mut [u8]) -> Result<(), DeviceError> {
        to.copy_from_slice(self);
        Ok(())
    }
}

impl PendingRead {
    /// Bytes that are there when an event is done.
    pub fn new(arrived: Arc<dyn Event>, bytes: Arc<dyn ReadBytes>) -> PendingRead {
        PendingRead { arrived, bytes }
    }

    /// Whether the bytes have arrived.
    pub fn is_done(&self) -> bool {
        self.arrived.is_done()
    }

    /// Waits for the bytes and copies them.
    ///
    /// # Errors
    /// The error of the work before them, and [`DeviceError::WrongLength`] unless `bytes` is as long as what was read.
    pub fn wait(&self, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.arrived.wait()?;
        let (expected, given) = (self.bytes.bytes(), bytes.len() as u64);
        if expected != given {
            return Err(DeviceError::WrongLength { tensor: "a read".to_owned(), expected, given });
        }
        self.bytes.copy_to(bytes)
    }
}

impl fmt::Debug for PendingRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRead").field("arrived", &self.arrived).finish_non_exhaustive()
    }
}

/// A point in a queue's work.
pub trait Event: Send + Sync + fmt::Debug {
    /// Whether that point is passed.
    fn is_done(&self) -> bool;

    /// Waits on the host until it is.
    ///
    /// # Errors
    /// The error of the work before it.
    fn wait(&self) -> Result<(), DeviceError>;

    /// When that point was passed. `None` while it is not, and for devices that do not measure: the caller then uses its
    /// own clock.
    fn passed_at(&self) -> Option<Instant> {
        None
    }

    /// For its device to recognize.
    fn as_any(&self) -> &dyn Any;
}

/// A buffer that a run touches, and how.
pub type Touch = (Arc<dyn Buffer>, AccessKind);

/// The point behind work that was done when it was given.
#[derive(Debug)]
struct Done;

impl Event for Done {
    fn is_done(&self) -> bool {
        true
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Compiled steps, bound to memory that it keeps alive. Its device's queues run it.
pub trait Program: Send + Sync + fmt::Debug {
    /// The buffers it touches and how: what a run must claim.
    fn touches(&self) -> &[Touch];

    /// For its device to recognize.
    fn as_any(&self) -> &dyn Any;
}

/// Choices of one run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Threads, up to the maximum of [`crate::LowerOptions`]. Default: that maximum.
    pub threads: Option<usize>,
    /// Stops the run between steps.
    pub cancel: Option<Cancel>,
    /// Notes when steps begin, on devices that can tell.
    pub clock: Option<StepClock>,
}

/// When steps of a program began, as far as its device knows. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct StepClock(Arc<Mutex<Vec<(usize, Instant)>>>);

impl StepClock {
    /// Notes that a step, and those behind it up to the next that is noted, begin now.
    pub fn note(&self, step: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((step, Instant::now()));
    }

    /// What was noted, in order.
    pub fn noted(&self) -> Vec<(usize, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Tells a run to stop. Clones share one switch.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A switch that is off.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Turns it on, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is on.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
