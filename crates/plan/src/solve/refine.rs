//! [Squeaky-wheel optimization]: each round of greedy placement moves the items that did not fit to the
//! front of the order. [Iterated local search] perturbs the best order when that stalls.
//!
//! [Squeaky-wheel optimization]: https://doi.org/10.1613/jair.561
//! [Iterated local search]: https://doi.org/10.1007/0-306-48056-5_11

use super::Search;
use super::greedy::{Aim, Fit, greedy};
use super::instance::Instance;
use crate::Strategy;

/// Rounds without improvement after which an order is dropped.
const PATIENCE: u32 = 64;
/// The same for a perturbed order.
const PERTURBED_PATIENCE: u32 = 6;
/// Perturbations without improvement after which the search ends.
const MAX_PERTURBATIONS: u32 = 2000;

/// An order, and the fit to place it with.
pub(super) type Seed = (Vec<u32>, Fit);

/// Starting points: the seed of the best plan so far, and all others.
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
    /// Promotes the misfits of each seed. Then perturbs the best order and tries again, until the budget is
    /// spent or progress stalls.
    pub(super) fn refine(&mut self, items: &Instance, seeds: Seeds) {
        let mut champion = seeds.best.clone();
        for seed in seeds.best.into_iter().chain(seeds.others) {
            let improved = self.promote_misfits(items, seed.clone(), PATIENCE);
            champion = improved.or(champion).or(Some(seed));
        }
        let Some(mut champion) = champion.filter(|(order, _)| order.len() > 1) else { return };
        let mut random = Xorshift64(0x9e37_79b9_7f4a_7c15);
        let mut idle = 0;
        while idle < MAX_PERTURBATIONS && !self.is_done() {
            idle += 1;
            let perturbed = (random.perturb(&champion.0), champion.1);
            if let Some(better) = self.promote_misfits(items, perturbed, PERTURBED_PATIENCE) {
                champion = better;
                idle = 0;
            }
        }
    }

    /// Returns the last seed that improved the plan.
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

/// The order with `front` moved to its front.
fn promote(order: Vec<u32>, front: &[u32], len: usize) -> Vec<u32> {
    let mut moved = vec![false; len];
    for item in front {
        moved[*item as usize] = true;
    }
    let rest = order.into_iter().filter(|item| !moved[*item as usize]);
    front.iter().copied().chain(rest).collect()
}

/// A pseudo-random generator with a fixed seed.
struct Xorshift64(u64);

impl Xorshift64 {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % (limit as u64).max(1)) as usize
    }

    /// The order with a few items moved forward.
    fn perturb(&mut self, order: &[u32]) -> Vec<u32> {
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
    fn a_perturbed_order_holds_the_same_items_and_repeats() {
        let order: Vec<u32> = (0..20).collect();
        let perturbed = Xorshift64(7).perturb(&order);
        assert_ne!(perturbed, order);
        assert_eq!(perturbed, Xorshift64(7).perturb(&order));
        let mut sorted = perturbed;
        sorted.sort_unstable();
        assert_eq!(sorted, order);
    }
}
