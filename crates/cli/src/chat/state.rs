//! `/save-state` and `/load-state`: a chat and its cache in a file.

use std::path::Path;

use orlop::llm::Error;

use super::Session;
use crate::failure::Failure;
use crate::load::state_failure;
use crate::quantity::short_bytes;

impl Session {
    /// Saves the chat and the cache, and returns what to tell the user.
    pub(super) fn save_state(&self, path: &Path) -> String {
        match self.chat.save_state(&self.loaded.engine, path) {
            Ok(bytes) => {
                format!("{} saved to {} ({})", self.state(), path.display(), short_bytes(bytes))
            }
            Err(error) => said(state_failure(path, error, "/save-state")),
        }
    }

    /// Continues a saved chat, and returns what to tell the user.
    ///
    /// # Errors
    /// What a device meets; files that do not fit are only noted.
    pub(super) fn load_state(&mut self, path: &Path) -> Result<String, Failure> {
        match self.chat.load_state(&mut self.loaded.engine, path) {
            Ok(_) => Ok(format!("{} loaded from {}", self.state(), path.display())),
            Err(error @ Error::RunFailed(_)) => Err(crate::load::failure(error)),
            Err(error) => Ok(said(state_failure(path, error, "/load-state"))),
        }
    }

    /// How much there is of the chat.
    fn state(&self) -> String {
        let turns = match self.chat.turns() {
            1 => "1 turn".to_owned(),
            count => format!("{count} turns"),
        };
        format!("chat of {turns} and {} tokens", self.loaded.engine.len())
    }
}

fn said(failure: Failure) -> String {
    match failure {
        Failure::BadInput(sentence) | Failure::OverLimits(sentence) => sentence,
        Failure::Other(error) => format!("{error:#}"),
        other => format!("{other:?}"),
    }
}
