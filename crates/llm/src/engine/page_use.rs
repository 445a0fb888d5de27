//! How much of the cache is in use.

use super::Engine;
use crate::{Error, SequenceId};

/// The pages of layers that keep the same rows: those of the whole context, or of one size of window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePoolUse {
    /// The rows that a token of these layers sees; `None`: all of its sequence.
    pub window: Option<u32>,
    /// Bytes of one page in all of these layers: [`PAGE_ROWS`](crate::PAGE_ROWS) rows of keys and values each.
    pub page_bytes: u64,
    /// All pages.
    pub pages: u64,
    /// Pages that no sequence uses.
    pub free: u64,
    /// Pages that several sequences use.
    pub shared: u64,
}

impl Engine {
    /// How much of the cache is in use, for each group of layers that keep the same rows; empty in models that keep states
    /// alone. Pages for windows are enough for every sequence, so only those of the whole context can run out.
    pub fn page_pools(&self) -> impl Iterator<Item = PagePoolUse> {
        self.sequences.pools().enumerate().map(|(group, (window, pool))| {
            let rows = self.cached(Some(group)).map(|cache| cache.desc().bytes());
            let pages = pool.len() as u64;
            PagePoolUse {
                window,
                page_bytes: rows.sum::<u64>() / pages,
                pages,
                free: pool.free() as u64,
                shared: pool.shared() as u64,
            }
        })
    }

    /// Pages of the whole context that are taken when tokens are added to sequences: new ones, and copies of shared ones that
    /// are written. A sequence that is not begun takes [`PAGE_ROWS`](crate::PAGE_ROWS) tokens a page.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::ContextFull`].
    pub fn pages_needed(&self, added: &[(SequenceId, usize)]) -> Result<u64, Error> {
        for (id, _) in added {
            self.sequences.slot(*id)?;
        }
        let is_in = |slot: usize, id: SequenceId| self.sequences.slot(id).is_ok_and(|known| known == slot);
        let tokens = |slot| added.iter().filter(|(id, _)| is_in(slot, *id)).map(|(_, tokens)| tokens).sum();
        self.sequences.needed_pages(tokens)
    }

    /// Bytes of the state of one sequence, in models that keep one.
    pub fn state_bytes(&self) -> u64 {
        self.states().map(|(_, bytes)| bytes).sum()
    }

    /// The sequences that exist.
    pub fn sequences(&self) -> impl Iterator<Item = SequenceId> {
        self.sequences.ids().map(|(_, id)| id)
    }

    /// Maximum of sequences.
    pub fn max_sequences(&self) -> u64 {
        self.blueprint.settings.sequences
    }

    /// Rows of logits that one run of [`Blueprint::batch`](crate::Blueprint::batch) tokens gives at most.
    pub fn max_rows(&self) -> u64 {
        self.blueprint.prompt.graph.shape.outputs
    }
}
