//! A text while it is generated, by a thread of its own.

use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use orlop::backend::Cancel;
use orlop::llm::{End, Error, GeneratedText};
use orlop::{TextModel, TextOptions};
use pyo3::prelude::*;

use crate::error::{ForkedError, raised};
use crate::shared::{Lent, WATCH};

/// A text while it is generated. Dropping it ends the generation.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct TextStreaming {
    made: Arc<Made>,
    cancel: Cancel,
    /// The process in which its thread is.
    process: u32,
}

/// What was made so far.
#[derive(Default)]
struct Made {
    state: Mutex<Progress>,
    /// More text, or the end.
    more: Condvar,
    /// The end; those who want the whole text are not woken before.
    end: Condvar,
}

#[derive(Default)]
struct Progress {
    /// Text that was not read yet.
    text: String,
    result: Option<Result<GeneratedText, Error>>,
}

impl Made {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(on: &Condvar, state: MutexGuard<'a, Progress>) -> MutexGuard<'a, Progress> {
        on.wait_timeout(state, WATCH).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Ends a stream whose thread panics.
struct Ending(Arc<Made>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().result.get_or_insert(Err(Error::NoLogits));
        self.0.more.notify_all();
        self.0.end.notify_all();
    }
}

impl TextStreaming {
    pub(crate) fn start(
        mut lent: Lent<TextModel>,
        prompt: Vec<u32>,
        options: TextOptions,
        cancel: Cancel,
    ) -> PyResult<TextStreaming> {
        let made = Arc::new(Made::default());
        let (ending, switch) = (Ending(Arc::clone(&made)), cancel.clone());
        let work = move || {
            let made = Arc::clone(&ending.0);
            let Some(model) = lent.get() else { return };
            model.cancel_with(Some(switch));
            let result = model.generate_from(&prompt, &options, &mut |piece| {
                made.lock().text.push_str(piece);
                made.more.notify_all();
                ControlFlow::Continue(())
            });
            model.cancel_with(None);
            // The model is free before the end is known.
            drop(lent);
            made.lock().result = Some(result);
        };
        thread::Builder::new().name("orlop-text".to_owned()).spawn(work).map_err(raised)?;
        Ok(TextStreaming { made, cancel, process: std::process::id() })
    }

    /// Waits until there is something, looking for Ctrl-C.
    fn wait<R: Send>(
        &self,
        py: Python<'_>,
        on: &Condvar,
        mut found: impl FnMut(&mut Progress) -> Option<R> + Send,
    ) -> PyResult<R> {
        if self.process != std::process::id() {
            return Err(ForkedError::new_err(
                "the stream belongs to the process that this one was forked from",
            ));
        }
        loop {
            let result = py.detach(|| {
                let mut state = self.made.lock();
                if let Some(result) = found(&mut state) {
                    return Some(result);
                }
                found(&mut Made::wait(on, state))
            });
            if let Some(result) = result {
                return Ok(result);
            }
            py.check_signals().inspect_err(|_| self.cancel.cancel())?;
        }
    }
}

#[pymethods]
impl TextStreaming {
    /// More text; `None` at the end.
    fn next_piece(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let piece = self.wait(py, &self.made.more, |state| match state.text.is_empty() {
            false => Some(Some(std::mem::take(&mut state.text))),
            true => state.result.is_some().then_some(None),
        })?;
        match piece {
            Some(piece) => Ok(Some(piece)),
            None => self.check().map(|()| None),
        }
    }

    /// Waits for the end, and gives the whole text, its tokens, how many of the prompt's were in the cache, why it ended, and the
    /// text that ended it.
    #[allow(clippy::type_complexity)]
    fn finish(&self, py: Python<'_>) -> PyResult<(String, Vec<u32>, usize, &'static str, Option<String>)> {
        self.wait(py, &self.made.end, |state| state.result.as_ref().map(|_| ()))?;
        self.check()?;
        let state = self.made.lock();
        let Some(Ok(made)) = &state.result else { return Err(raised("the text has no end")) };
        let end = match made.end {
            End::Token => "stop",
            End::Limit => "length",
            End::ContextFull => "context",
            End::Stopped => "cancelled",
        };
        Ok((made.text.clone(), made.tokens.clone(), made.kept, end, made.stopped_by.clone()))
    }

    /// Stops the generation, and waits until the model is free.
    fn cancel(&self, py: Python<'_>) {
        self.cancel.cancel();
        if self.process != std::process::id() {
            return;
        }
        py.detach(|| {
            let mut state = self.made.lock();
            while state.result.is_none() {
                state = Made::wait(&self.made.end, state);
            }
        });
    }

    #[getter]
    fn is_done(&self) -> bool {
        self.made.lock().result.is_some()
    }
}

impl TextStreaming {
    fn check(&self) -> PyResult<()> {
        match &self.made.lock().result {
            // A prompt that was not read to its end.
            Some(Err(error)) if !self.cancel.is_cancelled() => Err(raised(error)),
            _ => Ok(()),
        }
    }
}

impl Drop for TextStreaming {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
