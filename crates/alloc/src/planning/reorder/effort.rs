//! The work that the search for an order may spend.

/// Work that is left. One unit is about one look at a step that could be next.
#[derive(Clone, Copy)]
pub(super) struct Effort<'a> {
    left: u64,
    /// Polled every [`POLL_EVERY`] units; `true` leaves nothing.
    stop: &'a dyn Fn() -> bool,
    until_poll: u64,
    is_stopped: bool,
}

const POLL_EVERY: u64 = 1 << 14;

impl<'a> Effort<'a> {
    pub(super) fn new(left: u64, stop: &'a dyn Fn() -> bool) -> Effort<'a> {
        Effort { left, stop, until_poll: 0, is_stopped: false }
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    pub(super) fn spend(&mut self, units: u64) {
        self.left = self.left.saturating_sub(units);
        if units < self.until_poll {
            self.until_poll -= units;
            return;
        }
        self.until_poll = POLL_EVERY;
        self.is_stopped |= (self.stop)();
        if self.is_stopped {
            self.left = 0;
        }
    }

    /// A part of what is left, for one task; [`Self::settle`] takes the rest of it back.
    pub(super) fn share(&self, units: u64) -> Effort<'a> {
        Effort { left: units.min(self.left), ..*self }
    }

    /// Takes the rest of a share of `units` back.
    pub(super) fn settle(&mut self, units: u64, share: Effort<'a>) {
        let spent = units.min(self.left).saturating_sub(share.left);
        let left = if share.is_stopped { 0 } else { self.left - spent };
        *self = Effort { left, ..share };
    }
}
