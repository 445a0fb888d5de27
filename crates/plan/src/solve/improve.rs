//! The strategies that work on sections, and the order in which they run.

use super::balance::Balance;
use super::exact::{Exact, FitResult};
use super::repair::{Alive, repair};
use super::sections::Sections;
use super::valley::{PRESSED, WAYS, fill};
use super::{PORTFOLIO, Search};
use crate::{BufferId, Strategy};

/// Work of the first attempt at each height, per item.
const FIRST_TRY: u64 = 1 << 12;
/// Work of each strategy in the first round, per item, of at least [`MIN_ITEMS`].
const FIRST_ROUND: u64 = 1 << 7;
/// Work of the first repeated packings, per item.
const FIRST_BALANCE: u64 = 1 << 12;
const MIN_ITEMS: u64 = 1 << 10;
/// Target heights of repairs: the reduction as 64ths of the gap to the bound, in the order tried.
const AIMS: [u64; 5] = [64, 32, 16, 8, 3];
/// Fill variants that are always tried.
const FIRST_WAYS: usize = 3;
/// Limit on the stored items of [`Alive`].
const MAX_ALIVE: usize = 1 << 27;

/// What several rounds use, made for the first that needs it.
#[derive(Default)]
struct Tools {
    exact: Option<Option<Exact>>,
    alive: Option<Alive>,
}

impl Search<'_> {
    /// Runs every strategy, the cheapest first; then the improving ones in rounds of growing work.
    pub(super) fn improve(&mut self) {
        let Some(items) = Sections::new(self.problem) else { return self.offline(&PORTFOLIO, true) };
        let mut balance = self.fill(&items);
        let first = FIRST_BALANCE.saturating_mul(items.len() as u64);
        self.balance(&items, &mut balance, first.min(self.budget.left() / 2));
        if !self.is_done() {
            self.offline(&PORTFOLIO, false);
        }
        let mut tools = Tools::default();
        let mut work = FIRST_ROUND.saturating_mul((items.len() as u64).max(MIN_ITEMS));
        // Whether more exact search would help. It may end without a proof, as it looks at one chunk only.
        let mut is_open = true;
        while !self.is_done() {
            let before = self.budget.spent;
            if is_open {
                let exact = tools.exact.get_or_insert_with(|| self.exact_search(&items));
                is_open =
                    exact.as_ref().is_some_and(|exact| self.exact(&items, exact, work.saturating_mul(2)));
            }
            self.balance(&items, &mut balance, work);
            if !self.is_done() {
                self.repair(&items, tools.alive.get_or_insert_with(|| Alive::new(&items)), work);
            }
            // No strategy applies.
            if self.budget.spent == before {
                return;
            }
            work = work.saturating_mul(2);
        }
    }

    pub(super) fn valley(&mut self) {
        if let Some(items) = Sections::new(self.problem) {
            let mut balance = self.fill(&items);
            let left = self.budget.left();
            self.balance(&items, &mut balance, left);
        }
    }

    pub(super) fn repair_only(&mut self) {
        let Some(items) = Sections::new(self.problem) else { return };
        self.fill(&items);
        if self.best.is_none() {
            self.online();
        }
        if !self.is_done() {
            let left = self.budget.left();
            self.repair(&items, &Alive::new(&items), left);
        }
    }

    pub(super) fn exact_only(&mut self) {
        self.online();
        let Some(items) = Sections::new(self.problem) else { return };
        if !self.is_done() {
            self.fill(&items);
        }
        if !self.is_done()
            && let Some(exact) = self.exact_search(&items)
        {
            self.exact(&items, &exact, u64::MAX);
        }
    }

    fn exact_search(&self, items: &Sections) -> Option<Exact> {
        Exact::new(items, self.problem.max_chunk.is_some(), self.threads)
    }

    pub(super) fn offer_addresses(&mut self, items: &Sections, addresses: &[u64], strategy: Strategy) {
        if let Some(layout) = items.layout(addresses) {
            self.offer_items(&items.buffer, layout, strategy);
        }
    }

    /// Skyline packing with every variant of [`WAYS`], and what the dense ones came to.
    fn fill(&mut self, items: &Sections) -> Balance {
        let mut balance = Balance::default();
        if items.fixed.iter().any(Option::is_some) {
            return balance;
        }
        for (way, done) in WAYS.into_iter().zip(0..) {
            // Leaves most of the work for the next strategies.
            if self.is_done() || (done >= FIRST_WAYS && self.budget.spent > self.budget.left() / 8) {
                return balance;
            }
            let is_pressed = PRESSED.contains(&way);
            let most = match items.space.max_chunk {
                None if !is_pressed => self.best_peak().saturating_sub(1),
                _ => u64::MAX,
            };
            if let Some(addresses) = fill(items, way, &items.load, most, &mut self.budget) {
                self.offer_addresses(items, &addresses, Strategy::Valley);
                if is_pressed && !self.is_done() {
                    balance.push(items, way.1, &addresses, self.goal);
                }
            }
        }
        balance
    }

    /// Repairs the best plan towards lower and lower heights, until `work` is spent.
    fn repair(&mut self, items: &Sections, alive: &Alive, work: u64) {
        let end = self.budget.spent.saturating_add(work);
        if alive.len() > MAX_ALIVE {
            return;
        }
        self.budget.charge(alive.len() as u64);
        let mut aim = 0;
        while aim < AIMS.len() && self.budget.spent < end && !self.is_done() {
            let Some((layout, _)) = &self.best else { return };
            let Some(addresses) = items.addresses(&layout.places) else { return };
            let peak = layout.peak;
            let low = self.goal.max(self.lower);
            let height = peak - (peak - low).saturating_mul(AIMS[aim]).div_ceil(64);
            let mut share = self.budget.share(work.min(self.budget.left()) / 4);
            let repaired = repair(items, alive, addresses, height, &mut share);
            self.budget.settle(share);
            if let Some(addresses) = repaired {
                self.offer_addresses(items, &addresses, Strategy::Repair);
            }
            if self.best_peak() == peak {
                aim += 1;
            }
        }
    }

    /// Spends up to `work` on the search for a plan within the capacity, or for the smallest plan. `false` if more
    /// work would not help.
    fn exact(&mut self, items: &Sections, exact: &Exact, work: u64) -> bool {
        let end = self.budget.spent.saturating_add(work);
        match self.problem.capacity {
            Some(capacity) => self.reach(items, exact, capacity.min(exact.max_height), work),
            None => {
                let mut each = FIRST_TRY.saturating_mul(items.len() as u64);
                while self.budget.spent < end && !self.is_done() {
                    if !self.descend(items, exact, each, end) {
                        return false;
                    }
                    each = each.saturating_mul(4);
                }
                true
            }
        }
    }

    /// `false` if more work would not help.
    fn reach(&mut self, items: &Sections, exact: &Exact, capacity: u64, work: u64) -> bool {
        let mut share = self.budget.share(work);
        let before = share.spent;
        let result = exact.fit(capacity, None, &mut share);
        let is_open = result == FitResult::Unknown;
        match result {
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
        is_open
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
