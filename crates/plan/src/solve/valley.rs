//! The [best-fit skyline heuristic]: always fills the lowest segment of the skyline.
//!
//! The placed items form a skyline over the sections. Its lowest segment lies between two higher walls, and only items
//! that live within the segment fit on its floor. If there is none, the floor rises to the lower wall. Each step takes
//! logarithmic time, independent of the number of live items.
//!
//! [best-fit skyline heuristic]: https://doi.org/10.1287/opre.1040.0109

mod skyline;
mod tree;

use std::cmp::Reverse;
use std::ops::Range;

use super::budget::Budget;
use super::sections::Sections;
use skyline::{Segment, Skyline};
use tree::{ArgMaxTree, FirstAtMostTree};

/// Which items of a segment are considered first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Those at its ends: leaves no narrow gap beside a wall.
    Ends,
    /// Those live at the section with the highest pressure: keeps gaps out of critical sections.
    Dense,
}

/// The order among these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefer {
    /// Longest lifetime.
    Steps,
    /// Most sections, weighted by a high power of their pressure.
    Load,
    Bytes,
    Area,
}

/// The variants, in the order tried.
pub(super) const WAYS: [(Look, Prefer); 7] = [
    (Look::Ends, Prefer::Bytes),
    (Look::Dense, Prefer::Load),
    (Look::Dense, Prefer::Steps),
    (Look::Dense, Prefer::Area),
    (Look::Ends, Prefer::Area),
    (Look::Ends, Prefer::Steps),
    (Look::Dense, Prefer::Bytes),
];

/// The variants that are worth repeating with other pressures.
pub(super) const PRESSED: [(Look, Prefer); 2] = [WAYS[1], WAYS[2]];

/// Weight of a section with the maximal pressure.
const MAX_LOAD_WEIGHT: f64 = 1e6;
/// Work charged per turn.
const TURN_WORK: u64 = 64;

/// An address per item; `None` if an item would end above `max`, the budget is spent, or an address overflows.
/// `pressure` says per section how critical it is: without experience, its load. The problem must have no fixed items.
pub(super) fn fill(
    items: &Sections,
    (look, prefer): (Look, Prefer),
    pressure: &[u64],
    max: u64,
    budget: &mut Budget,
) -> Option<Vec<u64>> {
    let mut fill = Fill::new(items, pressure, look, prefer);
    budget.charge(TURN_WORK * items.len() as u64);
    let mut skyline = Skyline::new(items.load.len());
    let mut address = vec![0u64; items.len()];
    let mut left = items.len();
    while left > 0 {
        let segment = skyline.lowest()?;
        match fill.choose(&segment) {
            None => skyline.raise(&segment),
            Some(item) => {
                let at = items.earliest(item, segment.floor)?;
                let top = at.checked_add(items.bytes[item]).filter(|top| *top <= max)?;
                address[item] = at;
                fill.remove(item);
                skyline.cover(&segment, items.low[item]..items.high[item], top);
                left -= 1;
            }
        }
        budget.charge(TURN_WORK + std::mem::take(&mut fill.looks) / LOOKS_PER_WORK);
        if budget.is_spent() {
            return None;
        }
    }
    Some(address)
}

/// Items bucketed by section in CSR form, best first. Spans are stored in this order, so that looks are sequential.
#[derive(Default)]
struct SectionBuckets {
    /// Start of each bucket; one more at the end.
    first: Vec<u32>,
    /// Current end of each bucket.
    end: Vec<u32>,
    items: Vec<u32>,
    /// Per entry, the sections of its item; [`DROPPED`] once it is placed.
    spans: Vec<Span>,
    /// Per [`BLOCK`] entries, the latest start and the earliest end: no item of a block lives within a segment that
    /// ends before the one or starts after the other.
    blocks: Vec<Span>,
    /// Per item, its entry and its bucket.
    entry: Vec<u32>,
    bucket: Vec<u32>,
    /// Per bucket, its dropped entries.
    dropped: Vec<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Span {
    low: u32,
    high: u32,
}

/// Entries that are skipped at once.
const BLOCK: usize = 16;
/// Lives within no segment.
const DROPPED: Span = Span { low: 0, high: u32::MAX };

impl SectionBuckets {
    fn new(items: &Sections, order: &[u32], section: impl Fn(usize) -> u32) -> Self {
        let sections = items.load.len();
        let mut first = vec![0u32; sections + 1];
        for item in order {
            first[section(*item as usize) as usize + 1] += 1;
        }
        for s in 0..sections {
            first[s + 1] += first[s];
        }
        let mut end = first[..sections].to_vec();
        let bucket: Vec<u32> = (0..items.len()).map(&section).collect();
        let mut sorted = vec![0u32; order.len()];
        let (mut spans, mut entry) = (vec![DROPPED; order.len()], vec![0u32; order.len()]);
        for item in order {
            let i = *item as usize;
            let end = &mut end[section(i) as usize];
            sorted[*end as usize] = *item;
            spans[*end as usize] = Span { low: items.low[i], high: items.high[i] };
            entry[i] = *end;
            *end += 1;
        }
        let dropped = vec![0; sections];
        let mut buckets = Self { first, end, items: sorted, blocks: vec![], spans, entry, bucket, dropped };
        buckets.blocks = vec![DROPPED; buckets.spans.len().div_ceil(BLOCK)];
        (0..buckets.blocks.len()).for_each(|block| buckets.summarize(block));
        buckets
    }

    fn summarize(&mut self, block: usize) {
        let entries = block * BLOCK..self.spans.len().min((block + 1) * BLOCK);
        self.blocks[block] = self.spans[entries]
            .iter()
            .fold(DROPPED, |all, span| Span { low: all.low.max(span.low), high: all.high.min(span.high) });
    }

    /// The first entry of a bucket from `from` on that lives within the segment, and the number of looks.
    fn next_inside(&self, from: usize, end: usize, segment: &Segment) -> (Option<usize>, usize) {
        let (mut k, mut looks) = (from, 0);
        while k < end {
            looks += 1;
            let inside = |span: &Span| span.low >= segment.low && span.high <= segment.high;
            if k.is_multiple_of(BLOCK) && !inside(&self.blocks[k / BLOCK]) {
                k += BLOCK;
                continue;
            }
            if inside(&self.spans[k]) {
                return (Some(k), looks);
            }
            k += 1;
        }
        (None, looks)
    }

    fn of(&self, section: usize) -> Range<usize> {
        self.first[section] as usize..self.end[section] as usize
    }

    /// Drops a placed item.
    fn remove(&mut self, item: usize) {
        let Some(entry) = self.entry.get(item) else { return };
        self.spans[*entry as usize] = DROPPED;
        let section = self.bucket[item] as usize;
        self.dropped[section] += 1;
        if self.dropped[section] > DEAD && 2 * self.dropped[section] as usize > self.of(section).len() {
            self.dropped[section] = 0;
            self.close_gaps(section);
        }
    }

    /// Closes the gaps of removed items in a bucket.
    fn close_gaps(&mut self, section: usize) {
        let bucket = self.of(section);
        let (blocks, mut kept) = (bucket.start / BLOCK..bucket.end.div_ceil(BLOCK), bucket.start);
        for k in bucket {
            if self.spans[k] != DROPPED {
                (self.items[kept], self.spans[kept]) = (self.items[k], self.spans[k]);
                self.entry[self.items[k] as usize] = kept as u32;
                kept += 1;
            }
        }
        // What was left behind belongs to no bucket.
        self.spans[kept..self.end[section] as usize].fill(DROPPED);
        self.end[section] = kept as u32;
        blocks.for_each(|block| self.summarize(block));
    }
}

/// Limit on entries of a bucket that are examined.
const MAX_LOOKS: usize = 1 << 14;
/// Dropped entries that a bucket may keep.
const DEAD: u32 = 8;
/// Looks that are charged as one unit of work.
const LOOKS_PER_WORK: u64 = 4;

struct Fill<'a> {
    items: &'a Sections,
    pressure: &'a [u64],
    look: Look,
    placed: Vec<bool>,
    rank: Vec<u32>,
    /// By first section, for [`Look::Ends`].
    starts: SectionBuckets,
    /// By last section ([`Look::Ends`]), or by the section with the highest pressure ([`Look::Dense`]).
    others: SectionBuckets,
    densest: ArgMaxTree,
    /// Items by first section, then by last; and per section the first unplaced one.
    shortest: Vec<u32>,
    next_shortest: Vec<u32>,
    /// Per section, the earliest end of the unplaced items that start there.
    earliest: FirstAtMostTree,
    looks: u64,
}

impl<'a> Fill<'a> {
    fn new(items: &'a Sections, pressure: &'a [u64], look: Look, prefer: Prefer) -> Self {
        let sections = items.load.len();
        let order = order(items, pressure, prefer);
        let mut rank = vec![0u32; items.len()];
        for (position, item) in (0u32..).zip(&order) {
            rank[*item as usize] = position;
        }
        let (densest, others) = match look {
            Look::Ends => (ArgMaxTree::default(), SectionBuckets::new(items, &order, |i| items.high[i] - 1)),
            Look::Dense => {
                let densest = ArgMaxTree::new(pressure);
                let span = |i: usize| items.low[i] as usize..items.high[i] as usize;
                let peak: Vec<u32> = (0..items.len()).map(|i| densest.of(pressure, span(i)) as u32).collect();
                let buckets = SectionBuckets::new(items, &order, |i| peak[i]);
                (densest, buckets)
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
        let earliest = FirstAtMostTree::new(next_shortest.iter().map(high).collect());
        let starts = match look {
            Look::Ends => SectionBuckets::new(items, &order, |i| items.low[i]),
            Look::Dense => SectionBuckets::default(),
        };
        let placed = vec![false; items.len()];
        Self {
            items,
            pressure,
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

    /// An item for the floor of a segment; `None` if no item lives within it.
    fn choose(&mut self, segment: &Segment) -> Option<usize> {
        let section = self.first_start(segment)?;
        let best = match self.look {
            Look::Ends => self.choose_end(segment, section),
            Look::Dense => self.choose_dense(segment),
        };
        best.or_else(|| Some(self.shortest[self.next_shortest[section] as usize] as usize))
    }

    /// The first section at which an item within the segment starts.
    fn first_start(&self, segment: &Segment) -> Option<usize> {
        let section = self.earliest.first(segment.low as usize, segment.high)?;
        (section < segment.high as usize).then_some(section)
    }

    fn choose_end(&mut self, segment: &Segment, section: usize) -> Option<usize> {
        let right = self.first_inside(Bucket::Others, segment.high as usize - 1, segment);
        let left = if section == segment.low as usize || right.is_none() {
            self.first_inside(Bucket::Starts, section, segment)
        } else {
            None
        };
        left.into_iter().chain(right).min_by_key(|item| self.rank[*item])
    }

    fn choose_dense(&mut self, segment: &Segment) -> Option<usize> {
        // A stack of ranges to search.
        let mut open = vec![*segment];
        while let Some(stretch) = open.pop() {
            self.looks += 4;
            if self.first_start(&stretch).is_none() {
                continue;
            }
            let pressure = self.pressure;
            let densest = |low: u32, high: u32| self.densest.of(pressure, low as usize..high as usize);
            let middle = densest(stretch.low, stretch.high);
            let left = Segment { high: middle as u32, ..stretch };
            let right = Segment { low: middle as u32 + 1, ..stretch };
            let most = |side: &Segment| match side.low < side.high {
                true => pressure[densest(side.low, side.high)],
                false => 0,
            };
            let sides = if most(&left) >= most(&right) { [right, left] } else { [left, right] };
            if let Some(item) = self.first_inside(Bucket::Others, middle, &stretch) {
                return Some(item);
            }
            open.extend(sides.iter().filter(|side| side.low < side.high));
        }
        None
    }

    /// The first item of a bucket that lives within the segment, preferably one whose alignment allows its floor.
    fn first_inside(&mut self, which: Bucket, section: usize, segment: &Segment) -> Option<usize> {
        let items = self.items;
        let buckets = match which {
            Bucket::Starts => &mut self.starts,
            Bucket::Others => &mut self.others,
        };
        let bucket = buckets.of(section);
        let end = bucket.end.min(bucket.start + MAX_LOOKS);
        let (mut from, mut looked, mut found) = (bucket.start, 0, None);
        loop {
            let (entry, looks) = buckets.next_inside(from, end, segment);
            looked += looks;
            let Some(entry) = entry else { break };
            let i = buckets.items[entry] as usize;
            if items.earliest(i, segment.floor) == Some(segment.floor) {
                found = Some(i);
                break;
            }
            found = found.or(Some(i));
            from = entry + 1;
        }
        self.looks += looked as u64;
        found
    }

    fn remove(&mut self, item: usize) {
        self.placed[item] = true;
        self.starts.remove(item);
        self.others.remove(item);
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

/// Selects one of the two `SectionBuckets` of a [`Fill`].
#[derive(Clone, Copy)]
enum Bucket {
    Starts,
    Others,
}

/// Items, the preferred ones first.
fn order(items: &Sections, pressure: &[u64], prefer: Prefer) -> Vec<u32> {
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    match prefer {
        Prefer::Steps => order.sort_by_key(|i| Reverse(items.steps[*i as usize])),
        Prefer::Load => {
            let most = pressure.iter().copied().max().unwrap_or(0).max(1) as f64;
            // The 16th power makes half the pressure count almost nothing. Integers make sums exact.
            let share = |pressure: &u64| {
                let share = *pressure as f64 / most;
                (share.powi(16) * MAX_LOAD_WEIGHT) as u64
            };
            let sums: Vec<u64> = std::iter::once(0)
                .chain(pressure.iter().scan(0, |sum: &mut u64, pressure| {
                    *sum += share(pressure);
                    Some(*sum)
                }))
                .collect();
            let weight = |i: usize| sums[items.high[i] as usize] - sums[items.low[i] as usize];
            order.sort_by_key(|i| (Reverse(weight(*i as usize)), Reverse(items.steps[*i as usize])));
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
    fn the_floor_is_filled_before_it_is_raised() {
        // 30 beside 20 leaves a segment within which only the last item lives.
        let made = [(30, 0..4), (20, 6..9), (5, 4..6), (10, 2..8)];
        let buffers = made.map(|(size, live)| BufferSpec::new(size, 1, live)).to_vec();
        let items = Sections::new(&Problem { buffers, ..Problem::default() }).unwrap();
        for way in WAYS {
            let addresses =
                fill(&items, way, &items.load, u64::MAX, &mut Budget::per_buffer(1000, 1)).unwrap();
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
            assert_eq!(fill(&items, way, &items.load, 29, &mut budget), None);
            assert!(fill(&items, way, &items.load, 30, &mut budget).is_some());
        }
    }
}
