//! Ctrl-C during an answer.

use std::sync::{Arc, Mutex, PoisonError};

use orlop::backend::Cancel;

use crate::failure::Failure;

/// Makes Ctrl-C stop an answer instead of the program. At the prompt, the editor handles it as a key; between two answers
/// it does nothing.
pub(super) struct Interrupt {
    current: Arc<Mutex<Option<Cancel>>>,
}

/// While this exists, Ctrl-C triggers its [`Cancel`].
pub(super) struct Watch {
    cancel: Cancel,
    current: Arc<Mutex<Option<Cancel>>>,
}

impl Interrupt {
    /// Installs the handler. Call it once per process.
    pub(super) fn install() -> Result<Interrupt, Failure> {
        let current = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&current);
        let installed = ctrlc::set_handler(move || {
            if let Some(cancel) = &*seen.lock().unwrap_or_else(PoisonError::into_inner) {
                Cancel::cancel(cancel);
            }
        });
        installed.map_err(|error| {
            Failure::Other(anyhow::anyhow!("cannot install a handler for Ctrl-C ({error})"))
        })?;
        Ok(Interrupt { current })
    }

    /// Starts watching for Ctrl-C.
    pub(super) fn watch(&self) -> Watch {
        let cancel = Cancel::new();
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel.clone());
        Watch { cancel, current: Arc::clone(&self.current) }
    }
}

impl Watch {
    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
