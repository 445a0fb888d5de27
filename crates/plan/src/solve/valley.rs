//! Fills an arena from below: always into the lowest valley of what is there.
//!
//! What is placed forms a skyline over the sections of time. A valley of it is a stretch of equal height between
//! two higher walls, and only what lives inside the valley can lie on its ground. When nothing does, the ground is
//! raised to the lower wall. Every step takes logarithmic time, however many items are alive together.

mod skyline;
mod tree;

use std::cmp::Reverse;

use super::budget::Budget;
use super::sections::Sections;
use skyline::{Skyline, Valley};
use tree::{Densest, Earliest};

/// Which items of a valley are looked at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Those at its ends, so that no narrow strip is left beside a wall.
    Ends,
    /// Those at the section with most bytes alive, so that what is lost is lost elsewhere.
    Dense,
}

/// Which of these is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefer {
    /// Longest lived.
    Steps,
    /// Most sections, those with many bytes alive counted much more than others.
    Crowd,
    Bytes,
    Area,
}

/// The ways to fill, in the order they are tried.
pub(super) const WAYS: [(Look, Prefer); 7] = [
    (Look::Ends, Prefer::Bytes),
    (Look::Dense, Prefer::Crowd),
    (Look::Dense, Prefer::Steps),
    (Look::Dense, Prefer::Area),
    (Look::Ends, Prefer::Area),
    (Look::Ends, Prefer::Steps),
    (Look::Dense, Prefer::Bytes),
];

/// What a section with most bytes alive counts.
const CROWD_UNIT: f64 = 1e6;
/// Work that one turn is counted as.
const TURN_WORK: u64 = 64;

/// An address per item; `None` if one would end above `most`, the work is spent, or 64 bits are too few. Nothing is
/// fixed.
pub(super) fn fill(
    items: &Sections,
    (look, prefer): (Look, Prefer),
    most: u64,
    budget: &mut Budget,
) -> Option<Vec<u64>> {
    let mut fill = Fill::new(items, look, prefer);
    budget.charge(TURN_WORK * items.len() as u64);
    let mut skyline = Skyline::new(items.load.len());
    let mut address = vec![0u64; items.len()];
    let mut left = items.len();
    while left > 0 {
        let valley = skyline.lowest()?;
        match fill.choose(&valley) {
            None => skyline.raise(&valley),
            Some(item) => {
                let at = items.earliest(item, valley.ground)?;
                let top = at.checked_add(items.bytes[item]).filter(|top| *top <= most)?;
                address[item] = at;
                fill.remove(item);
                skyline.cover(&valley, items.low[item]..items.high[item], top);
                left -= 1;
            }
        }
        budget.charge(TURN_WORK + std::mem::take(&mut fill.looks));
        if budget.is_spent() {
            return None;
        }
    }
    Some(address)
}

/// Items in lists, one for each section, best first.
struct Lists {
    /// Where each list begins; one more at the end.
    first: Vec<u32>,
    /// Where each list ends now.
    end: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    fn new(sections: usize, order: &[u32], section: impl Fn(usize) -> u32) -> Self {
        let mut first = vec![0u32; sections + 1];
        for item in order {
            first[section(*item as usize) as usize + 1] += 1;
        }
        for s in 0..sections {
            first[s + 1] += first[s];
        }
        let mut end = first[..sections].to_vec();
        let mut items = vec![0u32; order.len()];
        for item in order {
            let end = &mut end[section(*item as usize) as usize];
            items[*end as usize] = *item;
            *end += 1;
        }
        Self { first, end, items }
    }

    fn of(&self, section: usize) -> &[u32] {
        &self.items[self.first[section] as usize..self.end[section] as usize]
    }

    /// Drops what is placed from a list.
    fn tidy(&mut self, section: usize, placed: &[bool]) {
        let (from, to) = (self.first[section] as usize, self.end[section] as usize);
        let mut kept = from;
        for k in from..to {
            if !placed[self.items[k] as usize] {
                self.items[kept] = self.items[k];
                kept += 1;
            }
        }
        self.end[section] = kept as u32;
    }
}

/// Items of a list that are looked at before the next best thing is taken.
const MOST_LOOKS: usize = 1 << 14;
/// Placed items at the front of a list before they are dropped.
const DEAD: usize = 8;

struct Fill<'a> {
    items: &'a Sections,
    look: Look,
    placed: Vec<bool>,
    rank: Vec<u32>,
    /// By first section.
    starts: Lists,
    /// By last section, or by densest section: whichever is looked at.
    others: Lists,
    densest: Densest,
    /// Items by first section, then by last; and per section the first of them that is not placed.
    shortest: Vec<u32>,
    next_shortest: Vec<u32>,
    /// Per section, how soon something ends that starts there and is not placed.
    earliest: Earliest,
    looks: u64,
}

impl<'a> Fill<'a> {
    fn new(items: &'a Sections, look: Look, prefer: Prefer) -> Self {
        let sections = items.load.len();
        let order = order(items, prefer);
        let mut rank = vec![0u32; items.len()];
        for (position, item) in (0u32..).zip(&order) {
            rank[*item as usize] = position;
        }
        let (densest, others) = match look {
            Look::Ends => (Densest::default(), Lists::new(sections, &order, |i| items.high[i] - 1)),
            Look::Dense => {
                let densest = Densest::new(&items.load);
                let span = |i: usize| items.low[i] as usize..items.high[i] as usize;
                let peak: Vec<u32> =
                    (0..items.len()).map(|i| densest.of(&items.load, span(i)) as u32).collect();
                let lists = Lists::new(sections, &order, |i| peak[i]);
                (densest, lists)
            }
        };
        let mut shortest: Vec<u32> = (0..items.len() as u32).collect();
        let mut next_shortest = Vec::with_capacity(sections);
        for section in 0..sections {
            let starting = items.starting(section..section + 1);
            next_shortest.push(starting.start as u32);
            shortest[starting].sort_unstable_by_key(|item| items.high[*item as usize]);
        }
        let high = |first: &u32| items.high[shortest[*first as usize] as usize];
        let earliest = Earliest::new(next_shortest.iter().map(high).collect());
        let starts = Lists::new(sections, &order, |i| items.low[i]);
        let placed = vec![false; items.len()];
        Self {
            items,
            look,
            placed,
            rank,
            starts,
            others,
            densest,
            shortest,
            next_shortest,
            earliest,
            looks: 0,
        }
    }

    /// A good item for the ground of a valley; `None` if nothing lives inside it.
    fn choose(&mut self, valley: &Valley) -> Option<usize> {
        let section = self.first_start(valley)?;
        let best = match self.look {
            Look::Ends => self.choose_end(valley, section),
            Look::Dense => self.choose_dense(valley),
        };
        best.or_else(|| Some(self.shortest[self.next_shortest[section] as usize] as usize))
    }

    /// The first section in which something starts that lives inside the valley.
    fn first_start(&self, valley: &Valley) -> Option<usize> {
        let section = self.earliest.first(valley.low as usize, valley.high)?;
        (section < valley.high as usize).then_some(section)
    }

    fn choose_end(&mut self, valley: &Valley, section: usize) -> Option<usize> {
        let right = self.first_inside(List::Others, valley.high as usize - 1, valley);
        let left = if section == valley.low as usize || right.is_none() {
            self.first_inside(List::Starts, section, valley)
        } else {
            None
        };
        left.into_iter().chain(right).min_by_key(|item| self.rank[*item])
    }

    fn choose_dense(&mut self, valley: &Valley) -> Option<usize> {
        // Stretches to look at, the last one first.
        let mut open = vec![*valley];
        while let Some(stretch) = open.pop() {
            self.looks += 4;
            if self.first_start(&stretch).is_none() {
                continue;
            }
            let load = &self.items.load;
            let densest = |low: u32, high: u32| self.densest.of(load, low as usize..high as usize);
            let middle = densest(stretch.low, stretch.high);
            let left = Valley { high: middle as u32, ..stretch };
            let right = Valley { low: middle as u32 + 1, ..stretch };
            let most = |side: &Valley| match side.low < side.high {
                true => load[densest(side.low, side.high)],
                false => 0,
            };
            let sides = if most(&left) >= most(&right) { [right, left] } else { [left, right] };
            if let Some(item) = self.first_inside(List::Others, middle, &stretch) {
                return Some(item);
            }
            open.extend(sides.iter().filter(|side| side.low < side.high));
        }
        None
    }

    /// The first of a list that lives inside the valley, better one that can lie on its very ground.
    fn first_inside(&mut self, which: List, section: usize, valley: &Valley) -> Option<usize> {
        let (items, placed) = (self.items, &self.placed);
        let lists = match which {
            List::Starts => &mut self.starts,
            List::Others => &mut self.others,
        };
        let (mut dead, mut looked, mut found) = (0, 0, None);
        for item in lists.of(section).iter().take(MOST_LOOKS) {
            let i = *item as usize;
            looked += 1;
            dead += usize::from(placed[i]);
            if placed[i] || items.low[i] < valley.low || items.high[i] > valley.high {
                continue;
            }
            if items.earliest(i, valley.ground) == Some(valley.ground) {
                found = Some(i);
                break;
            }
            found = found.or(Some(i));
        }
        if dead > DEAD && 2 * dead > looked {
            self.looks += lists.of(section).len() as u64;
            lists.tidy(section, placed);
        }
        self.looks += looked as u64;
        found
    }

    fn remove(&mut self, item: usize) {
        self.placed[item] = true;
        let section = self.items.low[item] as usize;
        let end = self.items.starting(section..section + 1).end;
        let mut next = self.next_shortest[section] as usize;
        while next < end && self.placed[self.shortest[next] as usize] {
            next += 1;
        }
        self.next_shortest[section] = next as u32;
        let high = if next < end { self.items.high[self.shortest[next] as usize] } else { u32::MAX };
        self.earliest.set(section, high);
    }
}

/// One of the two kinds of lists.
#[derive(Clone, Copy)]
enum List {
    Starts,
    Others,
}

/// Items, the preferred ones first.
fn order(items: &Sections, prefer: Prefer) -> Vec<u32> {
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    match prefer {
        Prefer::Steps => order.sort_by_key(|i| Reverse(items.steps[*i as usize])),
        Prefer::Crowd => {
            let most = items.load.iter().copied().max().unwrap_or(0).max(1) as f64;
            // Sixteenth powers, so that half the load counts next to nothing; as whole numbers, so that sums of
            // the same sections are the same.
            let share = |load: &u64| {
                let share = *load as f64 / most;
                (share.powi(16) * CROWD_UNIT) as u64
            };
            let sums: Vec<u64> = std::iter::once(0)
                .chain(items.load.iter().scan(0, |sum: &mut u64, load| {
                    *sum += share(load);
                    Some(*sum)
                }))
                .collect();
            let crowd = |i: usize| sums[items.high[i] as usize] - sums[items.low[i] as usize];
            order.sort_by_key(|i| (Reverse(crowd(*i as usize)), Reverse(items.steps[*i as usize])));
        }
        Prefer::Bytes => order.sort_by_key(|i| Reverse(items.bytes[*i as usize])),
        Prefer::Area => {
            let area = |i: usize| u128::from(items.steps[i]) * u128::from(items.bytes[i]);
            order.sort_by_cached_key(|i| Reverse(area(*i as usize)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferSpec, Problem};

    #[test]
    fn the_ground_is_filled_before_it_is_raised() {
        // 30 beside 20 leaves a valley in which only the last one lives.
        let made = [(30, 0..4), (20, 6..9), (5, 4..6), (10, 2..8)];
        let buffers = made.map(|(size, live)| BufferSpec::new(size, 1, live)).to_vec();
        let items = Sections::new(&Problem { buffers, ..Problem::default() }).unwrap();
        for way in WAYS {
            let addresses = fill(&items, way, u64::MAX, &mut Budget::per_buffer(1000, 1)).unwrap();
            assert_eq!(items.layout(&addresses).unwrap().peak, 40, "{way:?}");
            assert!(addresses.contains(&0));
        }
    }

    #[test]
    fn a_limit_ends_the_filling() {
        let buffers = vec![BufferSpec::new(10, 1, 0..1); 3];
        let items = Sections::new(&Problem { buffers, ..Problem::default() }).unwrap();
        let mut budget = Budget::per_buffer(1000, 1);
        for way in WAYS {
            assert_eq!(fill(&items, way, 29, &mut budget), None);
            assert!(fill(&items, way, 30, &mut budget).is_some());
        }
    }
}
