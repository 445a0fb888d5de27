//! Bottom-up order: the next item is the one with the lowest possible offset.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::budget::Budget;
use super::instance::Instance;
use crate::round::round_up;

/// Work charged per queue operation.
const QUEUE_WORK: u64 = 16;

/// Repeatedly stacks the free item with the lowest floor on top of the placed items in conflict with it, and
/// returns the order. `rank` breaks ties, lower first.
pub(super) fn skyline<K: Ord + Copy>(
    items: &Instance,
    rank: impl Fn(usize) -> K,
    budget: &mut Budget,
) -> Vec<u32> {
    let mut floor = vec![0u64; items.len()];
    let mut open = vec![false; items.len()];
    let mut queue = BinaryHeap::with_capacity(items.free.len());
    for &item in &items.free {
        open[item as usize] = true;
        queue.push(Reverse((0, rank(item as usize), item)));
    }
    let mut order = Vec::with_capacity(items.free.len());
    while let Some(Reverse((at, key, item))) = queue.pop() {
        let i = item as usize;
        let now = round_up(floor[i], items.align[i]).unwrap_or(u64::MAX);
        budget.charge(QUEUE_WORK);
        if now > at {
            // The floor rose since this was queued.
            queue.push(Reverse((now, key, item)));
            continue;
        }
        order.push(item);
        open[i] = false;
        let top = at.saturating_add(items.footprint[i]);
        let (earlier, later) = items.neighbours(item);
        budget.charge((earlier.len() + later.len()) as u64);
        for other in earlier.iter().map(|other| *other as usize).chain(later) {
            if open[other] {
                floor[other] = floor[other].max(top);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, Problem};

    #[test]
    fn what_can_lie_lower_comes_first_whatever_its_rank() {
        // Items 0 and 1 are alive together, 2 is alone: 0, then 2 beside it, then 1 on top of 0.
        let made = [(10, 0..4), (20, 2..6), (30, 6..9)];
        let buffers = made.map(|(size, live)| BufferSpec::new(size, 1, live)).to_vec();
        let items = Instance::new(&Problem { buffers, ..Problem::default() }, 100).unwrap();
        let mut budget = Budget::per_buffer(1, 1);
        assert_eq!(skyline(&items, |i| i, &mut budget), [0, 2, 1]);
        assert_eq!(skyline(&items, Reverse, &mut budget), [2, 1, 0]);
    }
}
