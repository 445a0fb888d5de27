//! What one call at a time uses, in the process that made it: models and sessions.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use orlop::llm::SequenceId;
use orlop::{PlanId, Session, TextModel};

use crate::error::Refusal;

/// A value whose parts belong to objects of the caller.
pub(crate) trait Releases {
    /// Names a part.
    type Id;

    /// Frees a part.
    fn release(&mut self, id: Self::Id) -> Result<(), Refusal>;
}

impl Releases for TextModel {
    type Id = SequenceId;

    fn release(&mut self, id: SequenceId) -> Result<(), Refusal> {
        self.engine_for_sequences().end_sequence(id).map_err(Refusal::failed)
    }
}

impl Releases for Session {
    type Id = PlanId;

    fn release(&mut self, id: PlanId) -> Result<(), Refusal> {
        Session::release(self, id).map_err(Refusal::failed)
    }
}

/// A value that is shared by an object and by those that were made with it.
pub(crate) struct Shared<T: Releases> {
    what: &'static str,
    /// The process that made it.
    process: u32,
    /// `None` only while it is dropped.
    value: Option<Mutex<T>>,
    /// Parts that were freed while a call used the value.
    freed: Mutex<Vec<T::Id>>,
}

impl<T: Releases> Shared<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Shared<T> {
        let (process, value) = (std::process::id(), Some(Mutex::new(value)));
        Shared { what, process, value, freed: Mutex::default() }
    }

    /// The value, if no other call uses it. What was freed meanwhile is released.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>, Refusal> {
        if self.is_foreign() {
            return Err(Refusal::forked(self.what));
        }
        let value = self.value.as_ref().ok_or_else(|| Refusal::busy(self.what))?;
        let mut value = lock(value, self.what)?;
        let freed = std::mem::take(&mut *self.freed.lock().unwrap_or_else(PoisonError::into_inner));
        freed.into_iter().try_for_each(|id| value.release(id))?;
        Ok(value)
    }

    /// Frees a part, before the next call at the latest.
    pub(crate) fn release(&self, id: T::Id) {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        // In use: the next call does it.
        drop(self.lock());
    }

    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }
}

impl<T: Releases> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.is_foreign() {
            // Its threads are not in this process: freeing it would wait for them.
            std::mem::forget(self.value.take());
        }
    }
}

/// What a mutex guards, if no other call uses it.
pub(crate) fn lock<'a, T>(value: &'a Mutex<T>, what: &str) -> Result<MutexGuard<'a, T>, Refusal> {
    value.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Refusal::busy(what),
        TryLockError::Poisoned(_) => Refusal::failed(format!("an earlier call of this {what} panicked")),
    })
}
