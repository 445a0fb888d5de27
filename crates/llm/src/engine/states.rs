//! What the cache holds of sequences, copied: pages, and states in models that keep them instead of keys and values.

use std::sync::Arc;

use orlop_backend::{DeviceError, StoredTensor, copy};
use orlop_graph::TensorDesc;

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

    /// Copies the first rows of a page to another one, in all layers of a group. Devices copy within their memory.
    pub(super) fn copy_page(&self, copied: PageCopy) -> Result<(), Error> {
        let PageCopy { group, from, into, rows, .. } = copied;
        for cache in self.cached(Some(group)) {
            let [width, _, heads, _] = cache.desc().extents;
            let [_, row, head, _] = cache.desc().strides;
            for number in 0..heads {
                let place = |page: u32| number * head + u64::from(page) * PAGE_ROWS * row;
                self.copy_piece(cache, [width, rows], [place(from), place(into)])?;
            }
        }
        Ok(())
    }

    /// Copies rows that lie together from one offset of a tensor to another.
    fn copy_piece(
        &self,
        tensor: &StoredTensor,
        extents: [u64; 2],
        [from, into]: [u64; 2],
    ) -> Result<(), DeviceError> {
        let rows = TensorDesc { extents: [extents[0], extents[1], 1, 1], ..*tensor.desc() };
        let piece = |offset| tensor.view(Arc::clone(&self.piece_name), rows, offset);
        copy(&piece(from)?, &piece(into)?).map(|_| ())
    }

    /// Resets a sequence's state.
    pub(super) fn clear_states(&self, slot: usize) -> Result<(), Error> {
        for (states, bytes) in self.states() {
            states.memset(slot as u64 * bytes, bytes, 0)?;
        }
        Ok(())
    }

    /// Copies a sequence's state to another slot.
    pub(super) fn copy_states(&self, from: usize, into: usize) -> Result<(), Error> {
        for (states, bytes) in self.states() {
            let place = |slot: usize| slot as u64 * bytes;
            self.copy_piece(states, [states.desc().extents[0], 1], [place(from), place(into)])?;
        }
        Ok(())
    }
}
