//! Rounds of greedy placement that learn from what did not fit.

use super::Search;
use super::greedy::{Aim, Fit, greedy};
use super::instance::Instance;
use crate::Strategy;

/// Rounds without a better plan after which an order is given up.
const PATIENCE: u32 = 64;
/// The same for an order that was shaken.
const SHAKEN_PATIENCE: u32 = 6;
/// Shakes in a row that may come to nothing before the search ends.
const SHAKES: u32 = 2000;

/// An order, and how gaps are chosen along it.
pub(super) type Seed = (Vec<u32>, Fit);

/// What to start from: the seed behind the best plan so far, and all others.
#[derive(Debug, Default)]
pub(super) struct Seeds {
    best: Option<Seed>,
    others: Vec<Seed>,
}

impl Seeds {
    pub(super) fn push(&mut self, seed: Seed) {
        self.others.push(seed);
    }

    pub(super) fn push_best(&mut self, seed: Seed) {
        self.others.extend(self.best.replace(seed));
    }
}

impl Search<'_> {
    /// Repeats a greedy run from each of `seeds`, moving what rose above the bound to the front each time.
    /// Then shakes the order that served best, and tries again, until the work is spent or nothing comes of
    /// it any more.
    pub(super) fn refine(&mut self, items: &Instance, seeds: Seeds) {
        let mut champion = seeds.best.clone();
        for seed in seeds.best.into_iter().chain(seeds.others) {
            let improved = self.promote_misfits(items, seed.clone(), PATIENCE);
            champion = improved.or(champion).or(Some(seed));
        }
        let Some(mut champion) = champion.filter(|(order, _)| order.len() > 1) else { return };
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        let mut idle = 0;
        while idle < SHAKES && !self.is_done() {
            idle += 1;
            let shaken = (dice.shake(&champion.0), champion.1);
            if let Some(better) = self.promote_misfits(items, shaken, SHAKEN_PATIENCE) {
                champion = better;
                idle = 0;
            }
        }
    }

    /// The last seed that gave a better plan, if one did.
    fn promote_misfits(&mut self, items: &Instance, (mut order, fit): Seed, patience: u32) -> Option<Seed> {
        let mut better = None;
        let mut stale = 0;
        while stale < patience && !self.is_done() {
            let aim = Aim { cutoff: self.best_peak(), target: self.bound };
            let run = greedy(items, &order, fit, aim, &mut self.budget);
            stale += 1;
            if let Some(layout) = run.layout {
                self.offer_items(&items.buffer, layout, Strategy::Refine);
                better = Some((order.clone(), fit));
                stale = 0;
            }
            if run.misfits.is_empty() {
                break;
            }
            order = promote(order, &run.misfits, items.len());
        }
        better
    }
}

/// The same order with `front` at its front.
fn promote(order: Vec<u32>, front: &[u32], len: usize) -> Vec<u32> {
    let mut moved = vec![false; len];
    for item in front {
        moved[*item as usize] = true;
    }
    let rest = order.into_iter().filter(|item| !moved[*item as usize]);
    front.iter().copied().chain(rest).collect()
}

/// Numbers without a pattern, the same ones every time (xorshift64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % (limit as u64).max(1)) as usize
    }

    /// The order with a few items moved forward.
    fn shake(&mut self, order: &[u32]) -> Vec<u32> {
        let mut order = order.to_vec();
        for _ in 0..1 + self.below(4) {
            let from = self.below(order.len());
            let to = self.below(from + 1);
            order[to..=from].rotate_right(1);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promoted_items_go_first_and_the_rest_keep_their_order() {
        assert_eq!(promote(vec![4, 3, 2, 1, 0], &[1, 3], 5), [1, 3, 4, 2, 0]);
    }

    #[test]
    fn a_shaken_order_holds_the_same_items_and_repeats() {
        let order: Vec<u32> = (0..20).collect();
        let shaken = Dice(7).shake(&order);
        assert_ne!(shaken, order);
        assert_eq!(shaken, Dice(7).shake(&order));
        let mut sorted = shaken;
        sorted.sort_unstable();
        assert_eq!(sorted, order);
    }
}
