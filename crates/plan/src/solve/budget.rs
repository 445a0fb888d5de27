//! Counted work.

/// Work spent and work allowed.
pub(super) struct Budget<'a> {
    pub(super) spent: u64,
    limit: u64,
    /// Asked now and then whether to stop, whatever is left.
    stop: Option<&'a dyn Fn() -> bool>,
    ask_at: u64,
}

/// Problems with fewer buffers than this get the work of this many.
const SMALL: u64 = 1024;
/// Work between two questions whether to stop.
const ASK_EVERY: u64 = 1 << 16;

impl<'a> Budget<'a> {
    pub(super) fn per_buffer(effort: u64, buffers: usize) -> Self {
        let limit = effort.saturating_mul((buffers as u64).max(SMALL));
        Self { spent: 0, limit, stop: None, ask_at: u64::MAX }
    }

    /// The same, ended before its time when `stop` says so.
    pub(super) fn until(self, stop: &'a dyn Fn() -> bool) -> Self {
        Self { stop: Some(stop), ask_at: self.spent, ..self }
    }

    /// Counts work that is done anyway.
    pub(super) fn charge(&mut self, units: u64) {
        self.spent = self.spent.saturating_add(units);
        if self.spent >= self.ask_at {
            self.ask_at = self.spent.saturating_add(ASK_EVERY);
            if self.stop.is_some_and(|stop| stop()) {
                self.limit = 0;
            }
        }
    }

    pub(super) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent)
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left() == 0
    }

    /// A part of what is left, to be spent on one thing; `settle` gives back what remains of it.
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
        assert_eq!((budget.spent, budget.left()), (10, SMALL - 10));
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
