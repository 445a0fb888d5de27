//! What a failed run leaves of the sequences.

use super::Engine;
use super::run::Item;
use crate::{Error, SequenceId};

/// A run that failed on a device, and which sequences survive it.
///
/// A sequence that is not listed holds what it held. The engine can go on, unless a device is lost: then the sequences
/// whose caches lay there are empty, and runs keep failing.
#[derive(Debug)]
pub struct RunFailure {
    /// What happened.
    pub cause: Error,
    /// The sequences that were fed, and those that a lost device held.
    pub sequences: Vec<SequenceLeft>,
}

/// What a failed run left of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceLeft {
    /// The sequence.
    pub sequence: SequenceId,
    /// Tokens before the call.
    pub before: usize,
    /// Tokens now. More than before, if earlier runs of the same call succeeded; fewer, if the cache no longer holds what
    /// was there: a run has changed a state, or a device is lost.
    pub tokens: usize,
}

impl SequenceLeft {
    /// Whether it holds all tokens that it had before.
    pub fn survives(&self) -> bool {
        self.tokens >= self.before
    }
}

impl Engine {
    /// What a call that failed has left of the sequences.
    pub(super) fn failure(&mut self, items: &[Item], lens: &[usize], cause: Error) -> Error {
        // Rows on a lost device are gone, whichever sequence was fed.
        let layout = &self.blueprint.layout;
        let devices = self.blueprint.machine.indices();
        let lost =
            |device| layout.caches.contains(&device) && self.blueprint.machine.device(device).facts().lost;
        let lost = devices.into_iter().any(lost);
        let mut sequences = Vec::new();
        for (slot, sequence) in self.sequences.ids() {
            let fed = items.iter().any(|item| item.slot == slot);
            if fed || lost && lens[slot] > 0 {
                sequences.push((slot, sequence));
            }
        }
        let left = sequences.into_iter().map(|(slot, sequence)| {
            if lost {
                self.sequences.truncate(slot, 0);
            }
            SequenceLeft { sequence, before: lens[slot], tokens: self.sequences.len(slot) }
        });
        let sequences = left.collect();
        Error::RunFailed(Box::new(RunFailure { cause, sequences }))
    }
}
