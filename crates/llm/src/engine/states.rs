//! States of sequences, in models that keep them instead of keys and values.

use orlop_backend::StoredTensor;

use super::Engine;
use crate::{Blueprint, Error};

impl Engine {
    /// Whether the model keeps a state of each sequence instead of rows.
    pub(super) fn keeps_states(&self) -> bool {
        self.config().state_space.is_some()
    }

    /// The tensors that hold states, and the bytes of one sequence in each.
    fn states(&self) -> impl Iterator<Item = (&StoredTensor, u64)> {
        let Blueprint { decode, settings, .. } = &self.blueprint;
        let decode = &decode.graph;
        let is_cache = |name: &str| {
            decode.caches.iter().any(|(cache, _)| decode.graph.tensor(*cache).name.as_str() == name)
        };
        let stored = self.loaded.tensors.iter().filter(move |tensor| is_cache(tensor.name()));
        stored.map(|tensor| (tensor, tensor.desc().bytes() / settings.sequences))
    }

    /// Resets a sequence's state.
    pub(super) fn clear_states(&self, slot: usize) -> Result<(), Error> {
        for (states, bytes) in self.states() {
            states.memset(slot as u64 * bytes, bytes, 0)?;
        }
        Ok(())
    }

    pub(super) fn copy_states(&self, from: usize, into: usize) -> Result<(), Error> {
        let mut copied = Vec::new();
        for (states, bytes) in self.states() {
            copied.resize(bytes as usize, 0);
            states.get(from as u64 * bytes, &mut copied)?;
            states.set(into as u64 * bytes, &copied)?;
        }
        Ok(())
    }
}
