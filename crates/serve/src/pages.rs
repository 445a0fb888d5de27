//! Pages: what is promised to whom, and what can be had.

use crate::scheduler::Running;
use crate::{Limits, PagedEngine, Request, Scheduler};

impl<R, S> Running<R, S> {
    /// Pages that it has, without one that is another sequence's.
    fn held(&self, limits: &Limits) -> usize {
        limits.pages_of(self.fed) - usize::from(self.shares_last)
    }

    /// Pages that it was promised and does not have.
    fn outstanding(&self, limits: &Limits) -> usize {
        limits.pages_of(self.promised).saturating_sub(self.held(limits))
    }

    /// Pages that it takes to feed tokens.
    pub(crate) fn needed(&self, limits: &Limits, tokens: usize) -> usize {
        limits.pages_of(self.fed + tokens) - self.held(limits)
    }
}

impl<E: PagedEngine, R: Request> Scheduler<E, R> {
    /// Pages that are free or can be evicted, and are not promised.
    pub(crate) fn available(&self) -> usize {
        let promised: usize = self.running.iter().map(|running| running.outstanding(&self.limits)).sum();
        (self.engine.free_pages() + self.tree.evictable()).saturating_sub(promised)
    }

    /// Evicts until pages are free. Gives whether they are.
    pub(crate) fn reclaim(&mut self, pages: usize) -> bool {
        while self.engine.free_pages() < pages {
            let Some(eviction) = self.tree.evict_page() else { return false };
            self.counts.evicted_pages += 1;
            self.apply(eviction);
        }
        true
    }

    /// Makes sure that the next tokens of a running request have rows. If no page can be had, a request is parked: one that is
    /// elastic, not the oldest, and cheapest to continue later. Gives whether the request itself can go on.
    pub(crate) fn grow(&mut self, place: usize) -> Growth {
        loop {
            let running = &self.running[place];
            let rows = running.fed + running.rest();
            let extra = self.limits.pages_of(rows).saturating_sub(self.limits.pages_of(running.promised));
            if extra <= self.available() {
                let running = &mut self.running[place];
                running.promised = running.promised.max(rows);
                return Growth::Ready;
            }
            let candidates = self.running.iter().enumerate().skip(1).filter(|(_, running)| running.elastic);
            let cost = |running: &Running<R, E::Sequence>| self.tree.own_tokens(&running.path, running.fed);
            let Some((victim, _)) =
                candidates.min_by_key(|(index, running)| (cost(running), usize::MAX - index))
            else {
                // Those before it were promised what they need, and will end.
                return Growth::Waits;
            };
            self.park(victim);
            if victim <= place {
                return if victim == place { Growth::Parked } else { Growth::Moved };
            }
        }
    }
}

/// Whether a request can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// It has rows for its next tokens.
    Ready,
    /// It waits for pages.
    Waits,
    /// It was parked.
    Parked,
    /// One before it was parked: its place has changed, and it is to be asked again.
    Moved,
}
