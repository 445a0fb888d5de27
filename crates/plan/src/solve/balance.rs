//! [Squeaky-wheel optimization] over sections: skyline packing again and again, each time with more pressure on the
//! sections that rose above the goal the time before.
//!
//! [Squeaky-wheel optimization]: https://doi.org/10.1613/jair.561

use std::cmp::Reverse;

use super::Search;
use super::sections::Sections;
use super::valley::{Look, Prefer, fill};
use crate::Strategy;

/// Work charged per item to find out how high each section rose.
const TOPS_WORK: u64 = 16;
/// Turns of a way without a smaller plan after which its pressures start again, with the next of [`STEPS`].
const PATIENCE: u32 = 12;
/// How much of its excess a section's pressure grows by, in 64ths.
const STEPS: [u64; 4] = [64, 16, 256, 4];

/// The pressures of every way of packing that heeds them.
#[derive(Debug, Default)]
pub(super) struct Balance {
    ways: Vec<Way>,
    turn: usize,
}

/// One way of packing.
#[derive(Debug)]
struct Way {
    prefer: Prefer,
    /// Per section.
    pressure: Vec<u64>,
    /// Its smallest peak.
    best: u64,
    idle: u32,
    step: usize,
}

impl Balance {
    /// Adds a way, and what its packing without added pressure came to.
    pub(super) fn push(&mut self, items: &Sections, prefer: Prefer, addresses: &[u64], goal: u64) {
        let tops = tops(items, addresses);
        let best = tops.iter().copied().max().unwrap_or(0);
        let mut way = Way { prefer, pressure: items.load.clone(), best, idle: 0, step: 0 };
        way.press(&tops, goal);
        self.ways.push(way);
        self.ways.sort_by_key(|way| way.best);
    }

    /// The way whose turn it is: the best one two times of three.
    fn next(&mut self) -> Option<&mut Way> {
        let count = self.ways.len().max(1);
        let which = if self.turn % 3 == 2 { 1 + self.turn / 3 % (count.max(2) - 1) } else { 0 };
        self.turn += 1;
        self.ways.get_mut(which % count)
    }
}

impl Way {
    /// Raises the pressure of the sections above the goal.
    fn press(&mut self, tops: &[u64], goal: u64) {
        for (pressure, top) in self.pressure.iter_mut().zip(tops) {
            let excess = top.saturating_sub(goal);
            *pressure = pressure.saturating_add(excess / 64 * STEPS[self.step] + excess % 64);
        }
    }

    /// Takes in what a turn came to.
    fn learn(&mut self, items: &Sections, tops: &[u64], goal: u64) {
        let peak = tops.iter().copied().max().unwrap_or(0);
        self.idle = if peak < self.best { 0 } else { self.idle + 1 };
        self.best = self.best.min(peak);
        if self.idle >= PATIENCE {
            self.idle = 0;
            self.step = (self.step + 1) % STEPS.len();
            self.pressure.clone_from(&items.load);
        }
        self.press(tops, goal);
    }
}

impl Search<'_> {
    /// Packs with changing pressures, until `work` is spent.
    pub(super) fn balance(&mut self, items: &Sections, balance: &mut Balance, work: u64) {
        let end = self.budget.spent.saturating_add(work);
        while self.budget.spent < end && !self.is_done() {
            let goal = self.goal.max(self.lower);
            let Some(way) = balance.next() else { return };
            let pressed = (Look::Dense, way.prefer);
            let Some(addresses) = fill(items, pressed, &way.pressure, u64::MAX, &mut self.budget) else {
                return;
            };
            self.budget.charge(TOPS_WORK * items.len() as u64);
            way.learn(items, &tops(items, &addresses), goal);
            self.offer_addresses(items, &addresses, Strategy::Valley);
        }
    }
}

/// Per section, the highest end of an item.
fn tops(items: &Sections, addresses: &[u64]) -> Vec<u64> {
    let top = |item: u32| addresses[item as usize] + items.bytes[item as usize];
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    order.sort_unstable_by_key(|item| Reverse(top(*item)));
    let sections = items.load.len();
    let mut tops = vec![0; sections];
    // Per section, the next one without a top, by path halving.
    let mut next: Vec<u32> = (0..=sections as u32).collect();
    let mut open = |mut section: u32, filled: bool| {
        if filled {
            next[section as usize] = section + 1;
        }
        while next[section as usize] != section {
            let after = next[next[section as usize] as usize];
            next[section as usize] = after;
            section = after;
        }
        section
    };
    for item in order {
        let mut section = open(items.low[item as usize], false);
        while section < items.high[item as usize] {
            tops[section as usize] = top(item);
            section = open(section, true);
        }
    }
    tops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, Problem, SolveOptions, solve};

    #[test]
    fn tops_are_the_highest_ends_of_each_section() {
        let made = [(10, 0..4), (20, 1..2), (30, 2..6), (5, 5..9)];
        let buffers = made.map(|(size, live)| BufferSpec::new(size, 1, live)).to_vec();
        let items = Sections::new(&Problem { buffers, ..Problem::default() }).unwrap();
        let addresses = [0, 10, 10, 40];
        let scan = |section: u32| {
            let there = |i: &usize| (items.low[*i]..items.high[*i]).contains(&section);
            (0..4).filter(there).map(|i| addresses[i] + items.bytes[i]).max().unwrap()
        };
        let expected: Vec<u64> = (0..items.load.len() as u32).map(scan).collect();
        assert_eq!(tops(&items, &addresses), expected);
    }

    #[test]
    fn pressure_on_the_sections_that_rose_gives_smaller_plans() {
        // Long and short lifetimes at random: no single packing reaches the bound.
        let mut state = 5u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % limit
        };
        let mut problem = Problem::default();
        for start in 0..600 {
            let longest = if below(8) == 0 { 200 } else { 6 };
            problem.push(BufferSpec::new(1 + below(1000), 1, start..start + 1 + below(longest))).unwrap();
        }
        // The less effort is spent before any packing is repeated.
        let peak = |effort| {
            let options = SolveOptions { effort, ..SolveOptions::with(Strategy::Valley) };
            solve(&problem, &options).unwrap().peak
        };
        assert!(peak(1 << 14) < peak(1 << 7), "{} {}", peak(1 << 14), peak(1 << 7));
    }
}
