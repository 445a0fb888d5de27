//! Gates and claims: what keeps runs and callers apart without waiting.

mod state;
mod sync;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use orlop_graph::AccessKind;

use crate::{Buffer, BufferType, DeviceError, Holder};
use state::GateState;

/// Who may touch a buffer now: any number of readers, or one writer. A gate never blocks: a conflicting claim is refused with
/// [`DeviceError::Busy`].
///
/// A gate is also its buffer's identity, and counts how often the buffer was written.
#[derive(Debug, Default)]
pub struct Gate(GateState);

impl Gate {
    /// An open gate.
    pub fn new() -> Arc<Gate> {
        Arc::new(Gate::default())
    }

    /// How many claims to write have ended. Copies of a buffer's contents are stale when it has grown.
    pub fn generation(&self) -> u64 {
        self.0.generation()
    }
}

/// A gate that was entered, and is left when this is dropped.
#[derive(Debug)]
struct Hold {
    gate: Arc<Gate>,
    kind: AccessKind,
    /// Whose gate it is, for errors.
    owner: Arc<dyn BufferType>,
    /// Inside, or only on the list of those that will be entered again.
    inside: bool,
}

impl Hold {
    fn take(buffer: &dyn Buffer, kind: AccessKind) -> Result<Hold, DeviceError> {
        let (gate, owner) = (Arc::clone(buffer.gate()), Arc::clone(buffer.buffer_type()));
        let mut hold = Hold { gate, kind, owner, inside: false };
        hold.enter()?;
        Ok(hold)
    }

    fn enter(&mut self) -> Result<(), DeviceError> {
        let entered = self.gate.0.enter(self.kind);
        entered.map_err(|holder| DeviceError::Busy { buffer_type: self.owner.name().to_owned(), holder })?;
        self.inside = true;
        Ok(())
    }

    fn allows(&self, buffer: &dyn Buffer, kind: AccessKind) -> bool {
        self.inside
            && Arc::ptr_eq(&self.gate, buffer.gate())
            && (kind == AccessKind::Read || self.kind == AccessKind::Write)
    }

    /// Leaves; `touched` says whether something may have been written.
    fn leave(&mut self, touched: bool) {
        if std::mem::take(&mut self.inside) {
            self.gate.0.leave(self.kind, touched && self.kind == AccessKind::Write);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.leave(true);
    }
}

/// Enters all gates, or none.
fn enter_all(holds: &mut [Hold]) -> Result<(), DeviceError> {
    for index in 0..holds.len() {
        if let Err(busy) = holds[index].enter() {
            holds[..index].iter_mut().for_each(|hold| hold.leave(false));
            return Err(busy);
        }
    }
    Ok(())
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
    held: Held,
    /// Set while a slice of the memory is in use. The cell also keeps a claim to one thread: a claim to write is exclusive,
    /// which it would not be if threads shared it.
    suspended: Cell<bool>,
}

#[derive(Debug)]
enum Held {
    Own(Hold),
    /// A run's, and its position there.
    Lent(Claims, usize),
}

impl Claim {
    /// Claims a buffer.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if others hold it in a way that excludes this.
    pub fn take(buffer: &dyn Buffer, kind: AccessKind) -> Result<Claim, DeviceError> {
        Ok(Claim { held: Held::Own(Hold::take(buffer, kind)?), suspended: Cell::new(false) })
    }

    /// Whether this claim allows `kind` on `buffer`.
    pub fn allows(&self, buffer: &dyn Buffer, kind: AccessKind) -> bool {
        let hold = match &self.held {
            Held::Own(hold) => hold,
            Held::Lent(claims, position) => &claims.0[*position],
        };
        !self.suspended.get() && hold.allows(buffer, kind)
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
pub struct Claims(Arc<[Hold]>);

impl Claims {
    /// Claims every buffer listed. A buffer listed twice is claimed for writing if either entry writes.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] for the first that others hold; then nothing is claimed.
    pub fn take<'a>(
        wanted: impl IntoIterator<Item = (&'a Arc<dyn Buffer>, AccessKind)>,
    ) -> Result<Claims, DeviceError> {
        let mut holds: Vec<Hold> = Vec::new();
        for (buffer, kind) in wanted {
            match holds.iter_mut().find(|known| Arc::ptr_eq(&known.gate, buffer.gate())) {
                Some(known) if kind == AccessKind::Write => known.kind = kind,
                Some(_) => {}
                None => {
                    let (gate, owner) = (Arc::clone(buffer.gate()), Arc::clone(buffer.buffer_type()));
                    holds.push(Hold { gate, kind, owner, inside: false });
                }
            }
        }
        enter_all(&mut holds)?;
        Ok(Claims(holds.into()))
    }

    /// Gives up what is claimed but keeps the list, for [`Claims::retake`]: a run that is repeated then claims without
    /// allocating memory. `false` if a queue still has a clone; then everything stays claimed.
    pub fn release(&mut self) -> bool {
        let Some(holds) = Arc::get_mut(&mut self.0) else { return false };
        holds.iter_mut().for_each(|hold| hold.leave(true));
        true
    }

    /// Claims everything on the list again, as [`Claims::take`] did. Nothing to do unless it was released.
    ///
    /// # Errors
    /// [`DeviceError::Busy`], and [`DeviceError::NotClaimed`] for a list that was cloned since; then nothing is claimed.
    pub fn retake(&mut self) -> Result<(), DeviceError> {
        let Some(open) = self.0.iter().find(|hold| !hold.inside) else { return Ok(()) };
        let owner = Arc::clone(&open.owner);
        match Arc::get_mut(&mut self.0) {
            Some(holds) => enter_all(holds),
            None => Err(DeviceError::NotClaimed { buffer_type: owner.name().to_owned() }),
        }
    }

    /// Passes if `kind` on `buffer` is claimed.
    ///
    /// # Errors
    /// [`DeviceError::NotClaimed`] if it is not.
    pub fn check(&self, buffer: &dyn Buffer, kind: AccessKind) -> Result<(), DeviceError> {
        self.find(buffer, kind).map(|_| ())
    }

    /// Of the claims that a queue keeps for its work, those that allow `kind` on `buffer` and that nothing else has a clone
    /// of. All uses of them are then this queue's, and further work of the queue comes behind those.
    pub fn held_alone<'a>(
        kept: impl Iterator<Item = &'a Claims> + Clone,
        buffer: &dyn Buffer,
        kind: AccessKind,
    ) -> Option<&'a Claims> {
        let found = kept.clone().find(|claims| claims.find(buffer, kind).is_ok())?;
        let own = kept.filter(|claims| Arc::ptr_eq(&claims.0, &found.0)).count();
        let alone = Arc::strong_count(&found.0) == own;
        // What others did before they dropped their clones is seen from here on.
        fence(Ordering::Acquire);
        alone.then_some(found)
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
        let position = self.find(buffer, kind)?;
        Ok(Claim { held: Held::Lent(self.clone(), position), suspended: Cell::new(false) })
    }

    fn find(&self, buffer: &dyn Buffer, kind: AccessKind) -> Result<usize, DeviceError> {
        self.0
            .iter()
            .position(|hold| hold.allows(buffer, kind))
            .ok_or_else(|| DeviceError::NotClaimed { buffer_type: buffer.buffer_type().name().to_owned() })
    }
}
