use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use orlop_graph::AccessKind;

use crate::{Buffer, Claims, DeviceError, StoredTensor, copy_claimed};

/// Work on one device, done in the order it was given.
///
/// A queue may run beside the host. It keeps the claims it was given with a piece of work until that work is
/// done. A queue whose work is done when [`Queue::submit`] returns needs nothing but that: the other methods are
/// written for it.
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
        // SAFETY: `lend` asks that no other thread touches these bytes meanwhile, which this function's caller
        // promises.
        let read = unsafe { claims.lend(&*from.slot().buffer, AccessKind::Read) }?;
        // SAFETY: as above.
        let write = unsafe { claims.lend(&*to.slot().buffer, AccessKind::Write) }?;
        copy_claimed(from, to, [&read, &write]).map(|_| ())
    }

    /// An event that is done when all work given so far is.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        // One for all, so that a run on such queues asks for no memory.
        static DONE: OnceLock<Arc<dyn Event>> = OnceLock::new();
        Ok(Arc::clone(DONE.get_or_init(|| Arc::new(Done))))
    }

    /// Lets work given from now on wait for an event of any queue.
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

/// A point in a queue's work.
pub trait Event: Send + Sync + fmt::Debug {
    /// Whether that point is passed.
    fn is_done(&self) -> bool;

    /// Waits on the host until it is.
    ///
    /// # Errors
    /// The error of the work before it.
    fn wait(&self) -> Result<(), DeviceError>;

    /// When that point was passed. `None` while it is not, and for devices that do not measure; then whoever waits
    /// looks at a clock.
    fn passed_at(&self) -> Option<Instant> {
        None
    }

    /// For its device to recognise.
    fn as_any(&self) -> &dyn Any;
}

/// A buffer that a run touches, and how.
pub type Touch = (Arc<dyn Buffer>, AccessKind);

/// The point behind work that was done as it was given.
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

    /// For its device to recognise.
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

/// When steps of a program began, as far as its device knows. Clones are one list.
#[derive(Clone, Debug, Default)]
pub struct StepClock(Arc<Mutex<Vec<(usize, Instant)>>>);

impl StepClock {
    /// A step, and those behind it up to the next that is noted, begin now.
    pub fn note(&self, step: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((step, Instant::now()));
    }

    /// What was noted, in order.
    pub fn noted(&self) -> Vec<(usize, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Tells a run to stop. Clones are one switch.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A switch that is not thrown.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Throws it, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it is thrown.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
