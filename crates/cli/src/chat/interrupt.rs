//! Ctrl-C while the model speaks.

use std::sync::{Arc, Mutex, PoisonError};

use orlop::backend::Cancel;

use crate::failure::Failure;

/// Makes Ctrl-C stop an answer instead of the program. At the prompt, where the editor sees it as a key, it never
/// comes here; one that comes between two answers is too late for the first, and does nothing.
pub(super) struct Interrupt {
    current: Arc<Mutex<Option<Cancel>>>,
}

/// While this lives, Ctrl-C throws its switch.
pub(super) struct Watch {
    cancel: Cancel,
    current: Arc<Mutex<Option<Cancel>>>,
}

impl Interrupt {
    /// From now on. Once in a process.
    pub(super) fn install() -> Result<Interrupt, Failure> {
        let current = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&current);
        let installed = ctrlc::set_handler(move || {
            if let Some(cancel) = &*seen.lock().unwrap_or_else(PoisonError::into_inner) {
                Cancel::cancel(cancel);
            }
        });
        installed
            .map_err(|error| Failure::Other(anyhow::anyhow!("Ctrl-C cannot be listened for ({error})")))?;
        Ok(Interrupt { current })
    }

    /// Gives Ctrl-C something to stop.
    pub(super) fn watch(&self) -> Watch {
        let cancel = Cancel::new();
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel.clone());
        Watch { cancel, current: Arc::clone(&self.current) }
    }
}

impl Watch {
    /// The switch.
    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
