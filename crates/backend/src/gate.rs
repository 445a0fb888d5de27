use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Buffer, DeviceError, Holder};
use orlop_graph::AccessKind;

const WRITER: u64 = u64::MAX;

/// Who may touch a buffer now: any number of readers, or one writer. Nobody waits at a gate; whoever comes
/// at the wrong time gets [`DeviceError::Busy`].
///
/// A gate is also its buffer's identity, and counts how often the buffer was written.
#[derive(Debug, Default)]
pub struct Gate {
    state: AtomicU64,
    generation: AtomicU64,
}

impl Gate {
    /// An open gate.
    pub fn new() -> Arc<Gate> {
        Arc::new(Gate::default())
    }

    /// How many claims to write have ended. Copies of a buffer's contents are stale when it has grown.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn enter(&self, kind: AccessKind) -> Result<(), Holder> {
        let step = |state: u64| match kind {
            AccessKind::Write => (state == 0).then_some(WRITER),
            AccessKind::Read => (state < WRITER - 1).then(|| state + 1),
        };
        match self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, step) {
            Ok(_) => Ok(()),
            Err(WRITER) => Err(Holder::Writer),
            Err(readers) => Err(Holder::Readers(readers)),
        }
    }

    fn leave(&self, kind: AccessKind, written: bool) {
        match kind {
            AccessKind::Write => {
                self.generation.fetch_add(u64::from(written), Ordering::AcqRel);
                self.state.store(0, Ordering::Release);
            }
            AccessKind::Read => {
                self.state.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// A gate that was entered, and is left when this is dropped.
#[derive(Debug)]
struct Hold {
    gate: Arc<Gate>,
    kind: AccessKind,
    /// Whether leaving counts as a write.
    written: bool,
}

impl Hold {
    fn take(buffer: &dyn Buffer, kind: AccessKind) -> Result<Hold, DeviceError> {
        let gate = buffer.gate();
        match gate.enter(kind) {
            Ok(()) => Ok(Hold { gate: Arc::clone(gate), kind, written: kind == AccessKind::Write }),
            Err(holder) => {
                Err(DeviceError::Busy { buffer_type: buffer.buffer_type().name().to_owned(), holder })
            }
        }
    }

    fn allows(&self, buffer: &dyn Buffer, kind: AccessKind) -> bool {
        Arc::ptr_eq(&self.gate, buffer.gate()) && (kind == AccessKind::Read || self.kind == AccessKind::Write)
    }

    /// Leaves without having touched anything: no write is counted.
    fn abandon(mut self) {
        self.written = false;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.gate.leave(self.kind, self.written);
    }
}

/// The right of one thread to read, or to read and write, one buffer for as long as it is held. It can go to
/// another thread, but not be shared:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<orlop_backend::Claim>();
/// ```
#[derive(Debug)]
pub struct Claim {
    hold: Arc<Hold>,
    /// Set while somebody has a slice of the memory. The cell also keeps a claim to one thread: a claim to
    /// write is exclusive, and shared between threads it would not be.
    suspended: Cell<bool>,
}

impl Claim {
    /// Claims a buffer.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if others hold it in a way that excludes this.
    pub fn take(buffer: &dyn Buffer, kind: AccessKind) -> Result<Claim, DeviceError> {
        Ok(Claim { hold: Arc::new(Hold::take(buffer, kind)?), suspended: Cell::new(false) })
    }

    /// Whether this claim allows `kind` on `buffer`.
    pub fn allows(&self, buffer: &dyn Buffer, kind: AccessKind) -> bool {
        !self.suspended.get() && self.hold.allows(buffer, kind)
    }

    /// Does `work`, during which this claim allows nothing. For work that is given a slice of the memory
    /// and calls another buffer's code, which could reach for this claim again.
    pub(crate) fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Restore<'a>(&'a Cell<bool>, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let _restore = Restore(&self.suspended, self.suspended.replace(true));
        work()
    }
}

/// All buffers that one run holds, for any number of queues. Queues keep a clone until the work they were
/// given is done, so memory stays claimed exactly as long as something may touch it.
#[derive(Clone, Debug)]
pub struct Claims(Arc<[Arc<Hold>]>);

impl Claims {
    /// Claims every buffer listed; one that is listed more than once, for writing if it is so once.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] for the first that others hold; then nothing is claimed.
    pub fn take<'a>(
        wanted: impl IntoIterator<Item = (&'a Arc<dyn Buffer>, AccessKind)>,
    ) -> Result<Claims, DeviceError> {
        let mut merged: Vec<(&Arc<dyn Buffer>, AccessKind)> = Vec::new();
        for (buffer, kind) in wanted {
            match merged.iter_mut().find(|(known, _)| Arc::ptr_eq(known.gate(), buffer.gate())) {
                Some((_, known)) if kind == AccessKind::Write => *known = kind,
                Some(_) => {}
                None => merged.push((buffer, kind)),
            }
        }
        let mut holds = Vec::with_capacity(merged.len());
        for (buffer, kind) in merged {
            match Hold::take(&**buffer, kind) {
                Ok(hold) => holds.push(hold),
                Err(busy) => {
                    holds.into_iter().for_each(Hold::abandon);
                    return Err(busy);
                }
            }
        }
        Ok(Claims(holds.into_iter().map(Arc::new).collect()))
    }

    /// Passes if `kind` on `buffer` is claimed.
    ///
    /// # Errors
    /// [`DeviceError::NotClaimed`] if it is not.
    pub fn check(&self, buffer: &dyn Buffer, kind: AccessKind) -> Result<(), DeviceError> {
        self.find(buffer, kind).map(|_| ())
    }

    /// One thread's claim out of the run's.
    ///
    /// # Errors
    /// [`DeviceError::NotClaimed`] if `kind` on `buffer` is not claimed.
    ///
    /// # Safety
    /// While the result is used, no other claim lent from the same run may be used, on this thread or another,
    /// to write bytes that it reads or to touch bytes that it writes: the run's schedule must order every
    /// such pair.
    pub unsafe fn lend(&self, buffer: &dyn Buffer, kind: AccessKind) -> Result<Claim, DeviceError> {
        Ok(Claim { hold: Arc::clone(self.find(buffer, kind)?), suspended: Cell::new(false) })
    }

    fn find(&self, buffer: &dyn Buffer, kind: AccessKind) -> Result<&Arc<Hold>, DeviceError> {
        self.0
            .iter()
            .find(|hold| hold.allows(buffer, kind))
            .ok_or_else(|| DeviceError::NotClaimed { buffer_type: buffer.buffer_type().name().to_owned() })
    }
}
