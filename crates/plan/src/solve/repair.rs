//! Brings a plan below a height: what rises above it is put elsewhere, and whatever is in its way makes room.

mod alive;

use std::collections::BinaryHeap;

use super::budget::Budget;
use super::sections::Sections;
pub(super) use alive::Alive;

const UNPLACED: u64 = u64::MAX;
/// Work that one look at another item is counted as: it is gathered, sorted, and passed twice.
const LOOK_WORK: u64 = 12;

/// The addresses with everything below `height`, if that succeeds before the work is spent.
///
/// Each item that rises above goes into the tightest gap that holds it. Where there is none, it goes where what must
/// give way is cheapest, and that is placed anew in turn. An item becomes dearer each time it moves, so that two do
/// not drive each other away for ever.
pub(super) fn repair(
    items: &Sections,
    alive: &Alive,
    mut address: Vec<u64>,
    height: u64,
    budget: &mut Budget<'_>,
) -> Option<Vec<u64>> {
    budget.charge(items.len() as u64);
    let mut homeless = BinaryHeap::new();
    for (item, at) in address.iter_mut().enumerate() {
        if at.saturating_add(items.bytes[item]) > height {
            if items.fixed[item].is_some() {
                return None;
            }
            *at = UNPLACED;
            homeless.push((items.bytes[item], item as u32));
        }
    }
    let mut moved = vec![0u32; items.len()];
    let mut around = Around::default();
    while let Some((_, item)) = homeless.pop() {
        let i = item as usize;
        around.gather(items, alive, i, &address);
        budget.charge(LOOK_WORK * (around.spans.len() as u64 + 4));
        if budget.is_spent() {
            return None;
        }
        if let Some(at) = around.tightest(items, i, height) {
            address[i] = at;
            continue;
        }
        let at = around.cheapest(items, i, height, &moved)?;
        let end = at + items.bytes[i];
        for span in around.spans.iter().filter(|span| span.low < end && span.high > at) {
            let other = span.item as usize;
            address[other] = UNPLACED;
            moved[other] += 1;
            homeless.push((items.bytes[other], span.item));
        }
        address[i] = at;
        moved[i] += 1;
    }
    Some(address)
}

/// Bytes of a placed item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    low: u64,
    high: u64,
    item: u32,
}

/// What is placed and alive together with one item, by address.
#[derive(Debug, Default)]
struct Around {
    spans: Vec<Span>,
    /// Positions in `spans`, by upper end.
    by_end: Vec<u32>,
}

impl Around {
    fn gather(&mut self, items: &Sections, alive: &Alive, item: usize, address: &[u64]) {
        self.spans.clear();
        alive.each(items, items.low[item]..items.high[item], |other| {
            let low = address[other as usize];
            if low != UNPLACED {
                self.spans.push(Span { low, high: low + items.bytes[other as usize], item: other });
            }
        });
        self.spans.sort_unstable();
    }

    /// The address in the smallest gap that is large enough.
    fn tightest(&self, items: &Sections, item: usize, height: u64) -> Option<u64> {
        let mut best: Option<(u64, u64)> = None;
        let mut floor = 0;
        let top = Span { low: height, high: height, item: 0 };
        for span in self.spans.iter().chain([&top]) {
            let room = span.low.saturating_sub(floor);
            if room >= items.bytes[item]
                && best.is_none_or(|(least, _)| room < least)
                && let Some(at) = items.earliest(item, floor)
                && at.checked_add(items.bytes[item]).is_some_and(|end| end <= span.low)
            {
                best = Some((room, at));
            }
            floor = floor.max(span.high);
        }
        best.map(|(_, at)| at)
    }

    /// The address at which what must give way costs least; `None` if fixed items are everywhere.
    fn cheapest(&mut self, items: &Sections, item: usize, height: u64, moved: &[u32]) -> Option<u64> {
        let cost = |span: &Span| {
            let other = span.item as usize;
            if items.fixed[other].is_some() {
                return f64::INFINITY;
            }
            let sections = f64::from(items.high[other] - items.low[other]);
            // Short lived items are easily placed anew, more than in proportion.
            items.bytes[other] as f64 * sections * sections.sqrt() * f64::from(1 + moved[other])
        };
        let spans = &self.spans;
        self.by_end.clear();
        self.by_end.extend(0..spans.len() as u32);
        self.by_end.sort_unstable_by_key(|position| spans[*position as usize].high);
        let ends = self.by_end.iter().map(|position| &spans[*position as usize]);
        let (mut entering, mut leaving) = (spans.iter().peekable(), ends.clone().peekable());
        // Fixed items are counted apart, as infinity cannot be taken away again.
        let (mut sum, mut fixed) = (0.0, 0u32);
        let mut best: Option<(f64, u64)> = None;
        for from in std::iter::once(0).chain(ends.map(|span| span.high)) {
            let Some(at) = items.earliest(item, from) else { break };
            let Some(end) = at.checked_add(items.bytes[item]).filter(|end| *end <= height) else { break };
            while let Some(span) = entering.next_if(|span| span.low < end) {
                let cost = cost(span);
                if cost.is_finite() { sum += cost } else { fixed += 1 }
            }
            while let Some(span) = leaving.next_if(|span| span.high <= at) {
                // Whatever ends below `at` began below it, and has entered.
                let cost = cost(span);
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
    fn what_is_too_high_goes_into_the_tightest_gap() {
        let buffers = vec![
            BufferSpec::new(10, 1, 0..9),
            BufferSpec::new(10, 1, 0..9),
            BufferSpec::new(10, 1, 0..9),
            BufferSpec::new(8, 1, 0..9),
        ];
        assert_eq!(run(buffers, vec![0, 19, 40, 50], 50), Some(vec![0, 19, 40, 10]));
    }

    #[test]
    fn what_is_in_the_way_makes_room() {
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
