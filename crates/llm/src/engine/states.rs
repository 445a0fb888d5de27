//! What the cache holds of sequences, copied: pages, and states in models that keep them instead of keys and values.

use std::mem;

use orlop_backend::StoredTensor;

use super::Engine;
use crate::Error;
use crate::draft::CacheTensor;
use crate::pages::PAGE_ROWS;
use crate::sequences::PageCopy;

impl Engine {
    /// Whether layers keep a state of each sequence.
    pub(super) fn keeps_states(&self) -> bool {
        self.config().keeps_states()
    }

    /// The tensors that hold states, and the bytes of one sequence in each.
    pub(super) fn states(&self) -> impl Iterator<Item = (&StoredTensor, u64)> {
        let sequences = self.blueprint.settings.sequences;
        let stored = self.cached(None);
        stored.map(move |tensor| (tensor, tensor.desc().bytes() / sequences))
    }

    /// The tensors of a group of layers, or those that hold states.
    pub(super) fn cached(&self, group: Option<usize>) -> impl Iterator<Item = &StoredTensor> {
        let graph = &self.blueprint.decode.graph;
        let is_there = move |name: &str| {
            let here = |cache: &CacheTensor| graph.graph.tensor(cache.tensor).name.as_str() == name;
            graph.caches.iter().any(|cache| cache.group == group && here(cache))
        };
        self.loaded.tensors.iter().filter(move |tensor| is_there(tensor.name()))
    }

    /// Copies the first rows of a page to another one, in all layers of a group.
    pub(super) fn copy_page(&mut self, copy: PageCopy) -> Result<(), Error> {
        let mut copied = mem::take(&mut self.numbers);
        let result = self.copy_rows(copy, &mut copied);
        self.numbers = copied;
        result
    }

    fn copy_rows(&self, copy: PageCopy, copied: &mut Vec<u8>) -> Result<(), Error> {
        let PageCopy { group, from, into, rows, .. } = copy;
        for cache in self.cached(Some(group)) {
            let [_, row, head, _] = cache.desc().strides;
            copied.resize((rows * row) as usize, 0);
            for number in 0..cache.desc().extents[2] {
                let place = |page: u32| number * head + u64::from(page) * PAGE_ROWS * row;
                cache.get(place(from), copied)?;
                cache.set(place(into), copied)?;
            }
        }
        Ok(())
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
