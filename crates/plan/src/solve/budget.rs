//! Counted work.

/// Work spent and work allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) spent: u64,
    limit: u64,
}

/// Problems with fewer buffers than this get the work of this many.
const SMALL: u64 = 4096;

impl Budget {
    pub(super) fn per_buffer(effort: u64, buffers: usize) -> Self {
        Self { spent: 0, limit: effort.saturating_mul((buffers as u64).max(SMALL)) }
    }

    /// Counts work that is done anyway.
    pub(super) fn charge(&mut self, units: u64) {
        self.spent = self.spent.saturating_add(units);
    }

    pub(super) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent)
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left() == 0
    }
}
