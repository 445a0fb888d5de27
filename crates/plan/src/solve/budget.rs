//! The work budget of a search.

/// Work spent and work allowed.
pub(super) struct Budget<'a> {
    pub(super) spent: u64,
    limit: u64,
    /// Polled every [`POLL_EVERY`] units; `true` ends the budget.
    stop: Option<&'a (dyn Fn() -> bool + Sync)>,
    ask_at: u64,
}

/// Smaller problems get the work of this many buffers.
const MIN_BUFFERS: u64 = 1024;
/// Work between two polls of `stop`.
const POLL_EVERY: u64 = 1 << 16;

impl<'a> Budget<'a> {
    pub(super) fn per_buffer(effort: u64, buffers: usize) -> Self {
        let limit = effort.saturating_mul((buffers as u64).max(MIN_BUFFERS));
        Self { spent: 0, limit, stop: None, ask_at: u64::MAX }
    }

    /// The same budget, ended early when `stop` returns `true`.
    pub(super) fn until(self, stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { stop: Some(stop), ask_at: self.spent, ..self }
    }

    /// Counts work, even beyond the limit.
    pub(super) fn charge(&mut self, units: u64) {
        self.spent = self.spent.saturating_add(units);
        if self.spent >= self.ask_at {
            self.ask_at = self.spent.saturating_add(POLL_EVERY);
            if self.is_stopped() {
                self.end();
            }
        }
    }

    pub(super) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent)
    }

    /// Leaves nothing.
    pub(super) fn end(&mut self) {
        self.limit = 0;
    }

    /// Asks whether to stop, for threads that count their work themselves.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop())
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left() == 0
    }

    /// A part of what is left for one task; `settle` returns the unspent rest.
    pub(super) fn share(&self, units: u64) -> Budget<'a> {
        let limit = self.spent.saturating_add(units.min(self.left()));
        Budget { spent: self.spent, limit, stop: self.stop, ask_at: self.ask_at }
    }

    pub(super) fn settle(&mut self, share: Budget<'_>) {
        let stopped = share.limit == 0;
        self.spent = share.spent;
        self.ask_at = share.ask_at;
        if stopped {
            self.limit = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_ends_early_and_what_it_did_is_counted() {
        let mut budget = Budget::per_buffer(1, 1);
        let mut share = budget.share(10);
        share.charge(10);
        assert!(share.is_spent());
        budget.settle(share);
        assert_eq!((budget.spent, budget.left()), (10, MIN_BUFFERS - 10));
    }

    #[test]
    fn being_told_to_stop_ends_it_all() {
        let mut budget = Budget::per_buffer(1 << 40, 1).until(&|| true);
        let mut share = budget.share(1 << 30);
        share.charge(1);
        assert!(share.is_spent());
        budget.settle(share);
        assert!(budget.is_spent());
    }
}
