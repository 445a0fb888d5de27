//! What one call at a time uses: models and sessions.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use orlop::backend::Cancel;
use pyo3::prelude::*;

use crate::error::{BusyError, ClosedError, ForkedError, raised};

/// How often a call that waits looks for Ctrl-C.
pub(crate) const WATCH: Duration = Duration::from_millis(50);

/// A value that one call at a time uses. Other threads wait; a stream is not waited for, as only its reader can end it.
pub(crate) struct Shared<T> {
    /// The process that made it.
    process: u32,
    what: &'static str,
    slot: Arc<Slot<T>>,
}

struct Slot<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Free(Box<T>),
    InCall,
    /// A stream has it, which ends soon once its switch is on.
    InStream(Cancel),
    Closed,
}

/// A value that is in use; dropping it frees it for others.
pub(crate) struct Lent<T> {
    value: Option<Box<T>>,
    slot: Arc<Slot<T>>,
}

impl<T> Lent<T> {
    /// The value; `None` only if it was taken out.
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        self.value.as_deref_mut()
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.slot.set(State::Free(value));
        }
    }
}

fn closed(what: &str) -> PyErr {
    ClosedError::new_err(format!("the {what} is closed"))
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // States are replaced as a whole, so a panic leaves none half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State<T>) {
        *self.lock() = state;
        self.changed.notify_all();
    }

    /// The value, if it becomes free in a moment; `None` if it does not.
    fn try_take(&self, what: &'static str) -> PyResult<Option<Box<T>>> {
        let mut state = self.lock();
        for waited in [false, true] {
            match std::mem::replace(&mut *state, State::InCall) {
                State::Free(value) => return Ok(Some(value)),
                State::Closed => {
                    *state = State::Closed;
                    return Err(closed(what));
                }
                State::InStream(cancel) if !cancel.is_cancelled() => {
                    *state = State::InStream(cancel);
                    return Err(BusyError::new_err(format!(
                        "a stream of the {what} has not ended; read it to its end, or close it"
                    )));
                }
                other => *state = other,
            }
            if !waited {
                state = self.changed.wait_timeout(state, WATCH).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        Ok(None)
    }
}

impl<T: Send + 'static> Shared<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Shared<T> {
        let slot = Slot { state: Mutex::new(State::Free(Box::new(value))), changed: Condvar::new() };
        Shared { process: std::process::id(), what, slot: Arc::new(slot) }
    }

    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    fn check_process(&self) -> PyResult<()> {
        if self.is_foreign() {
            let (what, made, here) = (self.what, self.process, std::process::id());
            return Err(ForkedError::new_err(format!(
                "the {what} was made in process {made}, and this is process {here}, which was forked from it; make another"
            )));
        }
        Ok(())
    }

    /// Passes unless the value is closed, or belongs to another process.
    pub(crate) fn check(&self) -> PyResult<()> {
        self.check_process()?;
        match *self.slot.lock() {
            State::Closed => Err(closed(self.what)),
            State::Free(_) | State::InCall | State::InStream(_) => Ok(()),
        }
    }

    /// Takes the value as soon as it is free.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Lent<T>> {
        self.check_process()?;
        loop {
            if let Some(value) = py.detach(|| self.slot.try_take(self.what))? {
                return Ok(Lent { value: Some(value), slot: Arc::clone(&self.slot) });
            }
            py.check_signals()?;
        }
    }

    /// Takes the value for a stream with this switch.
    pub(crate) fn take_for_stream(&self, py: Python<'_>, cancel: Cancel) -> PyResult<Lent<T>> {
        let lent = self.take(py)?;
        self.slot.set(State::InStream(cancel));
        Ok(lent)
    }

    /// Work that takes no time worth mentioning, without the GIL.
    pub(crate) fn with<R: Send, E: std::fmt::Display + Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> Result<R, E> + Send,
    ) -> PyResult<R> {
        let mut lent = self.take(py)?;
        let Some(value) = lent.get() else { return Err(ClosedError::new_err("it is closed")) };
        py.detach(|| work(value)).map_err(raised)
    }

    /// Work that Ctrl-C stops, on a thread of its own, while this one looks for signals. The switch is for `work` to watch.
    pub(crate) fn compute<R: Send, E: std::fmt::Display + Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T, &Cancel) -> Result<R, E> + Send,
    ) -> PyResult<R> {
        let mut lent = self.take(py)?;
        let Some(value) = lent.get() else { return Err(ClosedError::new_err("it is closed")) };
        py.detach(|| {
            let (cancel, (sender, receiver)) = (Cancel::new(), sync_channel(1));
            let seen = &cancel;
            thread::scope(|scope| {
                let worker = scope.spawn(move || {
                    let _ = sender.send(work(value, seen));
                });
                let mut interrupted = None;
                loop {
                    match receiver.recv_timeout(WATCH) {
                        Ok(result) => {
                            return interrupted.map_or_else(|| result.map_err(raised), Err);
                        }
                        Err(RecvTimeoutError::Timeout) if interrupted.is_none() => {
                            interrupted = Python::attach(|py| py.check_signals()).err();
                            interrupted.iter().for_each(|_| cancel.cancel());
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => {
                            let _ = worker.join();
                            return Err(raised("a thread panicked; this is a bug in orlop"));
                        }
                    }
                }
            })
        })
    }

    /// Frees the value. What is in use is freed when its call ends.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process()?;
        match self.take(py) {
            Ok(mut lent) => {
                let value = lent.value.take();
                self.slot.set(State::Closed);
                py.detach(|| drop(value));
                Ok(())
            }
            Err(error) if error.is_instance_of::<ClosedError>(py) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Its threads are not in this process: freeing it would wait for them.
            std::mem::forget(Arc::clone(&self.slot));
        }
    }
}
