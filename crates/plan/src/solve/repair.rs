//! Local search with [ejection chains]: moves the items that end above a target height, and ejects the items in
//! their way, which move in turn.
//!
//! [ejection chains]: https://doi.org/10.1016/0166-218X(94)00037-E

mod alive;

use std::collections::BinaryHeap;

use super::budget::Budget;
use super::sections::Sections;
pub(super) use alive::Alive;

const UNPLACED: u64 = u64::MAX;
/// Work charged per neighbour of an item: it is gathered, sorted, and scanned twice.
const LOOK_WORK: u64 = 12;

/// Addresses with every item below `height`, if found within the budget.
///
/// Each item above the height goes into the tightest gap that fits. If there is none, it goes where the items in its
/// way are cheapest to eject. Each move raises an item's cost, so that two items do not eject each other forever.
pub(super) fn repair(
    items: &Sections,
    alive: &Alive,
    mut address: Vec<u64>,
    height: u64,
    budget: &mut Budget<'_>,
) -> Option<Vec<u64>> {
    budget.charge(items.len() as u64);
    let mut unplaced = BinaryHeap::new();
    for (item, at) in address.iter_mut().enumerate() {
        if at.saturating_add(items.bytes[item]) > height {
            if items.fixed[item].is_some() {
                return None;
            }
            *at = UNPLACED;
            unplaced.push((items.bytes[item], item as u32));
        }
    }
    let mut moved = vec![0u32; items.len()];
    let mut neighbours = PlacedNeighbours::default();
    while let Some((_, item)) = unplaced.pop() {
        let i = item as usize;
        neighbours.gather(items, alive, i, &address);
        budget.charge(LOOK_WORK * (neighbours.ranges.len() as u64 + 4));
        if budget.is_spent() {
            return None;
        }
        if let Some(at) = neighbours.tightest(items, i, height) {
            address[i] = at;
            continue;
        }
        let at = neighbours.cheapest(items, i, height, &moved)?;
        let end = at + items.bytes[i];
        for range in neighbours.ranges.iter().filter(|range| range.low < end && range.high > at) {
            let other = range.item as usize;
            address[other] = UNPLACED;
            moved[other] += 1;
            unplaced.push((items.bytes[other], range.item));
        }
        address[i] = at;
        moved[i] += 1;
    }
    Some(address)
}

/// The addresses of a placed item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AddressRange {
    low: u64,
    high: u64,
    item: u32,
}

/// The placed items in conflict with one item, by address.
#[derive(Debug, Default)]
struct PlacedNeighbours {
    ranges: Vec<AddressRange>,
    /// Positions in `ranges`, by upper end.
    by_end: Vec<u32>,
}

impl PlacedNeighbours {
    fn gather(&mut self, items: &Sections, alive: &Alive, item: usize, address: &[u64]) {
        self.ranges.clear();
        alive.each(items, items.low[item]..items.high[item], |other| {
            let low = address[other as usize];
            if low != UNPLACED {
                self.ranges.push(AddressRange { low, high: low + items.bytes[other as usize], item: other });
            }
        });
        self.ranges.sort_unstable();
    }

    /// Best fit: the address in the smallest gap that is large enough.
    fn tightest(&self, items: &Sections, item: usize, height: u64) -> Option<u64> {
        let mut best: Option<(u64, u64)> = None;
        let mut floor = 0;
        let top = AddressRange { low: height, high: height, item: 0 };
        for range in self.ranges.iter().chain([&top]) {
            let room = range.low.saturating_sub(floor);
            if room >= items.bytes[item]
                && best.is_none_or(|(least, _)| room < least)
                && let Some(at) = items.earliest(item, floor)
                && at.checked_add(items.bytes[item]).is_some_and(|end| end <= range.low)
            {
                best = Some((room, at));
            }
            floor = floor.max(range.high);
        }
        best.map(|(_, at)| at)
    }

    /// The address with the smallest total cost of ejections; `None` if fixed items block every address.
    fn cheapest(&mut self, items: &Sections, item: usize, height: u64, moved: &[u32]) -> Option<u64> {
        let cost = |range: &AddressRange| {
            let other = range.item as usize;
            if items.fixed[other].is_some() {
                return f64::INFINITY;
            }
            let sections = f64::from(items.high[other] - items.low[other]);
            // Short-lived items are much easier to place again.
            items.bytes[other] as f64 * sections * sections.sqrt() * f64::from(1 + moved[other])
        };
        let ranges = &self.ranges;
        self.by_end.clear();
        self.by_end.extend(0..ranges.len() as u32);
        self.by_end.sort_unstable_by_key(|position| ranges[*position as usize].high);
        let ends = self.by_end.iter().map(|position| &ranges[*position as usize]);
        let (mut entering, mut leaving) = (ranges.iter().peekable(), ends.clone().peekable());
        // Fixed items are counted separately: infinity cannot be subtracted.
        let (mut sum, mut fixed) = (0.0, 0u32);
        let mut best: Option<(f64, u64)> = None;
        for from in std::iter::once(0).chain(ends.map(|range| range.high)) {
            let Some(at) = items.earliest(item, from) else { break };
            let Some(end) = at.checked_add(items.bytes[item]).filter(|end| *end <= height) else { break };
            while let Some(range) = entering.next_if(|range| range.low < end) {
                let cost = cost(range);
                if cost.is_finite() { sum += cost } else { fixed += 1 }
            }
            while let Some(range) = leaving.next_if(|range| range.high <= at) {
                // An item that ends below `at` also starts below it, so it has entered.
                let cost = cost(range);
                if cost.is_finite() { sum -= cost } else { fixed -= 1 }
            }
            if fixed == 0 && best.is_none_or(|(least, _)| sum < least) {
                best = Some((sum, at));
            }
        }
        best.map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, ChunkOffset, Problem};

    fn run(buffers: Vec<BufferSpec>, address: Vec<u64>, height: u64) -> Option<Vec<u64>> {
        let items = Sections::new(&Problem { buffers, ..Problem::default() }).unwrap();
        repair(&items, &Alive::new(&items), address, height, &mut Budget::per_buffer(1000, 1))
    }

    #[test]
    fn an_item_above_the_height_moves_into_the_tightest_gap() {
        let buffers = vec![
            BufferSpec::new(10, 1, 0..9),
            BufferSpec::new(10, 1, 0..9),
            BufferSpec::new(10, 1, 0..9),
            BufferSpec::new(8, 1, 0..9),
        ];
        assert_eq!(run(buffers, vec![0, 19, 40, 50], 50), Some(vec![0, 19, 40, 10]));
    }

    #[test]
    fn an_item_in_the_way_is_ejected() {
        // The large one fits only where the small one is.
        let buffers =
            vec![BufferSpec::new(4, 1, 0..2), BufferSpec::new(12, 1, 0..9), BufferSpec::new(4, 1, 3..9)];
        let found = run(buffers, vec![2, 6, 0], 16).unwrap();
        assert!(found[1] == 0 || found[1] == 4);
    }

    #[test]
    fn fixed_items_do_not_move() {
        let fixed = BufferSpec::new(4, 1, 0..9).fixed_at(ChunkOffset { chunk: 0, offset: 6 });
        let buffers = vec![fixed, BufferSpec::new(8, 1, 0..9)];
        assert_eq!(run(buffers.clone(), vec![6, 10], 16), None);
        assert_eq!(run(buffers, vec![6, 10], 18), Some(vec![6, 10]));
    }
}
