//! Orders of greedy placement.

use std::cmp::Reverse;

use super::budget::Budget;
use super::greedy::Fit;
use super::instance::Instance;
use super::skyline::skyline;
use crate::Strategy;

/// A sort key for items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Start,
    SizeThenLifetime,
    SizeThenStart,
    Lifetime,
    Area,
    ConflictBytes,
    ConflictCount,
    Distance,
    Pressure,
    Skyline(Tie),
}

/// The tie-break between items with equal lowest offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tie {
    Lifetime,
    Size,
    Area,
    PressureThenSize,
    PressureThenLifetime,
}

/// The keys that a greedy strategy tries, in turn. Empty for other strategies.
pub(super) fn keys(strategy: Strategy) -> &'static [Key] {
    match strategy {
        Strategy::Order => &[Key::Start],
        Strategy::Size => &[Key::SizeThenLifetime, Key::SizeThenStart],
        Strategy::Lifetime => &[Key::Lifetime],
        Strategy::Area => &[Key::Area],
        Strategy::Conflict => &[Key::ConflictBytes, Key::ConflictCount],
        Strategy::Dense => &[Key::Distance, Key::Pressure],
        Strategy::Skyline => &[
            Key::Skyline(Tie::Lifetime),
            Key::Skyline(Tie::Size),
            Key::Skyline(Tie::Area),
            Key::Skyline(Tie::PressureThenSize),
            Key::Skyline(Tie::PressureThenLifetime),
        ],
        _ => &[],
    }
}

/// The fits tried with an order, in turn.
pub(super) fn fits(key: Key) -> &'static [Fit] {
    match key {
        // This order comes from bottom-up stacking, so first fit reproduces its offsets.
        Key::Skyline(_) => &[Fit::First],
        _ => &[Fit::Best, Fit::First],
    }
}

/// Work charged for sorting, per item.
const SORT_WORK: u64 = 16;

/// The free items in placement order. `densest` is the step with the most bytes live.
pub(super) fn order(items: &Instance, key: Key, densest: u64, budget: &mut Budget) -> Vec<u32> {
    budget.charge(SORT_WORK * items.len() as u64);
    let size = |i: usize| Reverse(items.footprint[i]);
    let lifetime = |i: usize| Reverse(items.end[i] - items.start[i]);
    let area = |i: usize| Reverse(u128::from(size(i).0) * u128::from(lifetime(i).0));
    match key {
        Key::Start => by(items, |i| items.start[i]),
        Key::SizeThenLifetime => by(items, |i| (size(i), lifetime(i))),
        Key::SizeThenStart => by(items, |i| (size(i), items.start[i])),
        Key::Lifetime => by(items, |i| (lifetime(i), size(i))),
        Key::Area => by(items, area),
        Key::ConflictBytes => {
            budget.charge(2 * items.conflicts());
            let bytes = conflicting_bytes(items);
            by(items, |i| Reverse(bytes[i]))
        }
        Key::ConflictCount => by(items, |i| {
            let (earlier, later) = items.neighbours(i as u32);
            (Reverse(earlier.len() + later.len()), size(i))
        }),
        Key::Distance => by(items, |i| (distance(items, i, densest), size(i))),
        Key::Pressure => {
            let pressure = pressure(items);
            by(items, |i| (Reverse(pressure[i]), size(i)))
        }
        Key::Skyline(Tie::Lifetime) => skyline(items, lifetime, budget),
        Key::Skyline(Tie::Size) => skyline(items, size, budget),
        Key::Skyline(Tie::Area) => skyline(items, area, budget),
        Key::Skyline(Tie::PressureThenSize) => {
            let pressure = pressure(items);
            skyline(items, |i| (Reverse(pressure[i]), size(i)), budget)
        }
        Key::Skyline(Tie::PressureThenLifetime) => {
            let pressure = pressure(items);
            skyline(items, |i| (Reverse(pressure[i]), lifetime(i)), budget)
        }
    }
}

/// Free items by ascending key; equal keys keep the order of first steps.
fn by<K: Ord>(items: &Instance, key: impl Fn(usize) -> K) -> Vec<u32> {
    let mut order = items.free.clone();
    order.sort_by_cached_key(|item| key(*item as usize));
    order
}

/// Steps between an item's lifetime and `step`.
fn distance(items: &Instance, i: usize, step: u64) -> u64 {
    let after = items.start[i].saturating_sub(step);
    let before = (step + 1).saturating_sub(items.end[i]);
    after.max(before)
}

/// Per item, the total bytes of the items in conflict with it.
fn conflicting_bytes(items: &Instance) -> Vec<u128> {
    let size = |j: usize| u128::from(items.footprint[j]);
    let bytes = |i: u32| {
        let (earlier, later) = items.neighbours(i);
        earlier.iter().map(|j| size(*j as usize)).chain(later.map(size)).sum()
    };
    (0..items.len() as u32).map(bytes).collect()
}

/// Per item, the most bytes live at one step of its lifetime.
fn pressure(items: &Instance) -> Vec<u64> {
    let mut steps: Vec<u64> = items.start.clone();
    steps.sort_unstable();
    steps.dedup();
    let index = |step: u64| steps.partition_point(|other| *other < step);
    // Live bytes grow only at starts, so every maximum is at one of them.
    let mut change = vec![0i128; steps.len() + 1];
    for i in 0..items.len() {
        change[index(items.start[i])] += i128::from(items.footprint[i]);
        change[index(items.end[i])] -= i128::from(items.footprint[i]);
    }
    let alive = change.iter().scan(0i128, |sum, step| {
        *sum += step;
        Some(u64::try_from(*sum).unwrap_or(u64::MAX))
    });
    let tree = RangeMax::new(alive.take(steps.len()).collect());
    (0..items.len()).map(|i| tree.max(index(items.start[i]), index(items.end[i]))).collect()
}

/// A segment tree for range maxima.
struct RangeMax {
    tree: Vec<u64>,
}

impl RangeMax {
    /// Leaves are in the upper half; each inner node is the maximum of its two children.
    fn new(leaves: Vec<u64>) -> Self {
        let n = leaves.len();
        let mut tree = vec![0; n];
        tree.extend(leaves);
        for node in (1..n).rev() {
            tree[node] = tree[2 * node].max(tree[2 * node + 1]);
        }
        Self { tree }
    }

    fn max(&self, low: usize, high: usize) -> u64 {
        let n = self.tree.len() / 2;
        let (mut low, mut high, mut best) = (low + n, high + n, 0);
        while low < high {
            if low % 2 == 1 {
                best = best.max(self.tree[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                best = best.max(self.tree[high]);
            }
            (low, high) = (low / 2, high / 2);
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, Problem};

    /// Sizes 10, 30, 20, 5 at steps 0..9, 1..2, 2..8, 8..9.
    fn four() -> Instance {
        let made = [(10, 0..9), (30, 1..2), (20, 2..8), (5, 8..9)];
        let buffers = made.map(|(size, live)| BufferSpec::new(size, 1, live)).to_vec();
        Instance::new(&Problem { buffers, ..Problem::default() }, 100).unwrap()
    }

    fn first(strategy: Strategy) -> Vec<u32> {
        order(&four(), keys(strategy)[0], 1, &mut Budget::per_buffer(100, 4))
    }

    #[test]
    fn each_strategy_has_its_order() {
        assert_eq!(first(Strategy::Order), [0, 1, 2, 3]);
        assert_eq!(first(Strategy::Size), [1, 2, 0, 3]);
        assert_eq!(first(Strategy::Lifetime), [0, 2, 1, 3]);
        assert_eq!(first(Strategy::Area), [2, 0, 1, 3]);
        assert_eq!(first(Strategy::Conflict), [0, 1, 2, 3]);
        assert_eq!(first(Strategy::Dense), [1, 0, 2, 3]);
        assert_eq!(first(Strategy::Skyline), [0, 2, 1, 3]);
    }

    #[test]
    fn pressure_is_the_peak_load_of_a_lifetime() {
        assert_eq!(pressure(&four()), [40, 40, 30, 15]);
    }

    #[test]
    fn maxima_agree_with_a_scan() {
        let numbers = [3, 1, 4, 1, 5, 9, 2];
        let tree = RangeMax::new(numbers.to_vec());
        for low in 0..7 {
            for high in low + 1..=7 {
                assert_eq!(tree.max(low, high), *numbers[low..high].iter().max().unwrap());
            }
        }
    }

    #[test]
    fn steps_at_the_end_of_time_have_a_distance() {
        let buffers = vec![BufferSpec::new(1, 1, 0..u64::MAX), BufferSpec::new(1, 1, 0..1)];
        let items = Instance::new(&Problem { buffers, ..Problem::default() }, 100).unwrap();
        assert_eq!([0, 1].map(|i| distance(&items, i, u64::MAX - 1)), [0, u64::MAX - 1]);
    }
}
