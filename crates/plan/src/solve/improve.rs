//! The strategies that work on sections, and the order in which they run.

use super::exact::{Exact, FitResult};
use super::repair::{Alive, repair};
use super::sections::Sections;
use super::valley::{WAYS, fill};
use super::{PORTFOLIO, Search};
use crate::{BufferId, Strategy};

/// Work of the first attempt at each height, per item.
const FIRST_TRY: u64 = 1 << 12;
/// Target heights of repairs: the reduction as 64ths of the gap to the bound, in the order tried.
const AIMS: [u64; 5] = [64, 32, 16, 8, 3];
/// Fill variants that are always tried.
const FIRST_WAYS: usize = 2;
/// Limit on the stored items of [`Alive`].
const MAX_ALIVE: usize = 1 << 27;

impl Search<'_> {
    /// Runs every strategy, the cheapest first.
    pub(super) fn improve(&mut self) {
        let Some(items) = Sections::new(self.problem) else { return self.offline(&PORTFOLIO, true) };
        self.fill(&items);
        if !self.is_done() {
            self.offline(&PORTFOLIO, false);
        }
        if !self.is_done() {
            let left = self.budget.left();
            self.exact(&items, left / 2);
        }
        if !self.is_done() {
            self.repair(&items);
        }
        if !self.is_done() {
            self.exact(&items, u64::MAX);
        }
    }

    pub(super) fn valley(&mut self) {
        if let Some(items) = Sections::new(self.problem) {
            self.fill(&items);
        }
    }

    pub(super) fn repair_only(&mut self) {
        let Some(items) = Sections::new(self.problem) else { return };
        self.fill(&items);
        if self.best.is_none() {
            self.online();
        }
        if !self.is_done() {
            self.repair(&items);
        }
    }

    pub(super) fn exact_only(&mut self) {
        self.online();
        let Some(items) = Sections::new(self.problem) else { return };
        if !self.is_done() {
            self.fill(&items);
        }
        if !self.is_done() {
            self.exact(&items, u64::MAX);
        }
    }

    fn offer_addresses(&mut self, items: &Sections, addresses: &[u64], strategy: Strategy) {
        if let Some(layout) = items.layout(addresses) {
            self.offer_items(&items.buffer, layout, strategy);
        }
    }

    /// Skyline packing with every variant of [`WAYS`].
    fn fill(&mut self, items: &Sections) {
        if items.fixed.iter().any(Option::is_some) {
            return;
        }
        for (way, done) in WAYS.into_iter().zip(0..) {
            // Leaves a third of the work for the next strategies.
            if self.is_done() || (done >= FIRST_WAYS && self.budget.spent / 2 > self.budget.left()) {
                return;
            }
            let most =
                if items.space.max_chunk.is_some() { u64::MAX } else { self.best_peak().saturating_sub(1) };
            if let Some(addresses) = fill(items, way, most, &mut self.budget) {
                self.offer_addresses(items, &addresses, Strategy::Valley);
            }
        }
    }

    /// Repairs the best plan towards lower and lower heights.
    fn repair(&mut self, items: &Sections) {
        let alive = Alive::new(items);
        self.budget.charge(alive.len() as u64);
        if alive.len() > MAX_ALIVE {
            return;
        }
        let mut aim = 0;
        while aim < AIMS.len() && !self.is_done() {
            let Some((layout, _)) = &self.best else { return };
            let Some(addresses) = items.addresses(&layout.places) else { return };
            let peak = layout.peak;
            let low = self.goal.max(self.lower);
            let height = peak - (peak - low).saturating_mul(AIMS[aim]).div_ceil(64);
            let mut share = self.budget.share(self.budget.left() / 8);
            let repaired = repair(items, &alive, addresses, height, &mut share);
            self.budget.settle(share);
            if let Some(addresses) = repaired {
                self.offer_addresses(items, &addresses, Strategy::Repair);
            }
            if self.best_peak() == peak {
                aim += 1;
            }
        }
    }

    /// Spends up to `work` on the search for a plan within the capacity, or for the smallest plan.
    fn exact(&mut self, items: &Sections, work: u64) {
        let Some(exact) = Exact::new(items, self.problem.max_chunk.is_some()) else { return };
        let end = self.budget.spent.saturating_add(work);
        match self.problem.capacity {
            Some(capacity) => self.reach(items, &exact, capacity.min(exact.max_height), work),
            None => {
                let mut each = FIRST_TRY.saturating_mul(items.len() as u64);
                while self.budget.spent < end && !self.is_done() && self.descend(items, &exact, each, end) {
                    each = each.saturating_mul(4);
                }
            }
        }
    }

    fn reach(&mut self, items: &Sections, exact: &Exact, capacity: u64, work: u64) {
        let mut share = self.budget.share(work);
        let before = share.spent;
        match exact.fit(capacity, None, &mut share) {
            FitResult::Fits(addresses) => self.offer_addresses(items, &addresses, Strategy::Exact),
            FitResult::Impossible(items_in_conflict)
                if exact.proves && Some(capacity) == self.problem.capacity =>
            {
                let proof = share.spent - before;
                let few = exact.conflict(capacity, &items_in_conflict, proof, &mut share);
                let buffer = |item: u32| self.problem.id(items.buffer[item as usize] as usize);
                let mut together: Vec<BufferId> = few.into_iter().filter_map(buffer).collect();
                together.sort_unstable();
                self.conflict = Some(together);
            }
            _ => {}
        }
        self.budget.settle(share);
    }

    /// Bisects the heights between the proven lower bound and the best plan, with work `each` per height. `false` if
    /// more work would not help.
    fn descend(&mut self, items: &Sections, exact: &Exact, each: u64, end: u64) -> bool {
        let unit = exact.unit();
        let (mut low, mut height) = (self.lower, self.lower);
        let mut is_open = false;
        while low < self.best_peak() && low <= exact.max_height && self.budget.spent < end && !self.is_done()
        {
            let known = self.best.as_ref().and_then(|(layout, _)| items.addresses(&layout.places));
            let mut share = self.budget.share(each.min(end - self.budget.spent));
            let result = exact.fit(height, known.as_deref(), &mut share);
            self.budget.settle(share);
            let above = (height / unit).saturating_add(1).saturating_mul(unit);
            match result {
                FitResult::Fits(addresses) => {
                    let before = self.best_peak();
                    self.offer_addresses(items, &addresses, Strategy::Exact);
                    if self.best_peak() == before {
                        return false;
                    }
                }
                FitResult::Impossible(_) => {
                    low = above;
                    if exact.proves {
                        self.lower = self.lower.max(above);
                    }
                }
                FitResult::Unknown => {
                    is_open = true;
                    low = above;
                }
            }
            let high = self.best_peak().min(exact.max_height.saturating_add(1));
            height = low + high.saturating_sub(low) / 2;
            height -= (height - low) % unit;
        }
        is_open
    }
}
