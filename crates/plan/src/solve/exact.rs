//! Exact search: a plan within a height, or the proof that there is none.

pub(super) mod core;
mod levels;
mod part;
mod search;

use std::cmp::Reverse;
use std::ops::Range;

use super::budget::Budget;
use super::sections::{Line, Sections};
use part::Part;
use search::{Ask, Outcome, Search};

/// What is known of a height.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It suffices: an address per item.
    Fits(Vec<u64>),
    /// It does not. The items of one part are to blame.
    Impossible(Vec<u32>),
    /// The work was not enough to tell.
    Unknown,
}

/// A problem cut into parts that do not meet in time.
#[derive(Debug)]
pub(super) struct Exact {
    parts: Vec<(usize, Part)>,
    items: usize,
    /// Heights above this are not looked at.
    pub(super) most: u64,
    /// A height that is impossible here is impossible for every plan.
    pub(super) proves: bool,
}

/// What answers are tried by.
#[derive(Clone, Copy, Debug)]
enum Order {
    Steps,
    Bytes,
    Area,
    Density,
}

/// Searches that take turns, as each has problems that it solves at once and others that it never does; and how
/// many times the turns of the last ones the first ones get.
const SEARCHES: [(Order, Ask, u64); 7] = [
    (Order::Steps, Ask::Troubled, 3),
    (Order::Area, Ask::Fewest, 1),
    (Order::Bytes, Ask::Lowest, 1),
    (Order::Density, Ask::Troubled, 1),
    (Order::Steps, Ask::Lowest, 1),
    (Order::Bytes, Ask::Troubled, 1),
    (Order::Area, Ask::Troubled, 1),
];

/// Parts whose sets of decisions would take more memory than this are not searched.
const MOST_BYTES: usize = 1 << 28;
/// Work that may always be spent to see whether fewer items do not fit either.
const EASY_WORK: u64 = 1 << 20;
/// Turns between two looks at the budget.
const TURNS: u64 = 1 << 10;

impl Exact {
    /// `None` if a part is too large to be searched. `limited`: the problem has a chunk limit, even if everything
    /// fits one chunk.
    pub(super) fn new(all: &Sections, limited: bool) -> Option<Self> {
        let bound = all.load.iter().copied().max().unwrap_or(0);
        let at_foot = |max: u64| all.fixed.iter().flatten().all(|address| *address < max);
        // Within one chunk there are no borders to mind.
        let one = all.line.max_chunk.filter(|max| bound <= *max && at_foot(*max));
        let line = if one.is_some() { Line::default() } else { all.line };
        let spans = all.parts();
        let bytes = |(sections, items): &(Range<usize>, Range<usize>)| {
            let depth = 2 * items.len();
            (depth / 8).saturating_mul(sections.len() + depth)
        };
        if spans.iter().any(|span| bytes(span) > MOST_BYTES) {
            return None;
        }
        let part = |(sections, items): (Range<usize>, Range<usize>)| {
            (items.start, Part::new(all, line, sections, items))
        };
        let parts: Vec<(usize, Part)> = spans.into_iter().map(part).collect();
        // Several chunks can be stacked into one of the same height if alignments allow it.
        let proves = line.max_chunk.is_none() && (!limited || parts.iter().all(|(_, part)| part.plain));
        Some(Self { parts, items: all.len(), most: one.unwrap_or(u64::MAX), proves })
    }

    /// What every sensible height is a multiple of.
    pub(super) fn unit(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.unit()).fold(0, part::gcd).max(1)
    }

    /// Whether everything fits `height`. Parts that fit it in `known` keep their addresses.
    pub(super) fn fit(&self, height: u64, known: Option<&[u64]>, budget: &mut Budget<'_>) -> Answer {
        let mut addresses = vec![0; self.items];
        for (first, part) in &self.parts {
            let span = *first..*first + part.len();
            let within = |known: &&[u64]| {
                known[span.clone()]
                    .iter()
                    .zip(&part.bytes)
                    .all(|(at, bytes)| at.saturating_add(*bytes) <= height)
            };
            if let Some(known) = known.filter(within) {
                addresses[span.clone()].copy_from_slice(&known[span]);
                continue;
            }
            match fit(part, height, budget) {
                Some(Some(found)) => addresses[span].copy_from_slice(&found),
                Some(None) => return Answer::Impossible((span.start as u32..span.end as u32).collect()),
                None => return Answer::Unknown,
            }
        }
        Answer::Fits(addresses)
    }

    /// A small set of items that do not fit `height` together, out of those of a part that does not, which took
    /// `proof` work to see.
    pub(super) fn conflict(
        &self,
        height: u64,
        items: &[u32],
        proof: u64,
        budget: &mut Budget<'_>,
    ) -> Vec<u32> {
        let Some(first) = items.first() else { return vec![] };
        let found = self.parts.iter().find(|(start, _)| *start == *first as usize);
        let Some((_, part)) = found else { return items.to_vec() };
        let each = EASY_WORK.saturating_add(2 * proof);
        let mut share = budget.share(each.saturating_mul(2 * part.len() as u64));
        let few = core::shrink(part, height, each, &mut share);
        budget.settle(share);
        few.into_iter().map(|item| item + first).collect()
    }
}

/// `Some(None)` if there is no plan of a part within a height, `None` if that is not known.
fn fit(part: &Part, height: u64, budget: &mut Budget<'_>) -> Option<Option<Vec<u64>>> {
    if part.bound() > height {
        return Some(None);
    }
    let orders: Vec<Vec<u32>> = SEARCHES.iter().map(|(order, ..)| ordered(part, *order)).collect();
    let mut searches: Vec<Search> = SEARCHES
        .iter()
        .zip(&orders)
        .map(|((_, ask, _), order)| Search::new(part, height, order, *ask))
        .collect();
    let mut turns = 2 * part.len() as u64 + 64;
    loop {
        for (search, (_, _, times)) in searches.iter_mut().zip(SEARCHES) {
            match run(search, turns * times, part, budget)? {
                Outcome::Found => return Some(Some(search.addresses().to_vec())),
                Outcome::Exhausted => return Some(None),
                Outcome::Stopped => search.restart(),
            }
        }
        turns = turns.saturating_mul(2);
    }
}

/// Lets a search go on; `None` if the work is spent.
fn run(search: &mut Search<'_>, turns: u64, part: &Part, budget: &mut Budget<'_>) -> Option<Outcome> {
    let mut left = turns;
    while left > 0 {
        let before = search.turns;
        let outcome = search.run(left.min(TURNS));
        let done = search.turns - before;
        budget.charge((done + 1) * turn_work(part));
        if outcome != Outcome::Stopped {
            return Some(outcome);
        }
        if budget.is_spent() {
            return None;
        }
        left -= done.min(left);
    }
    Some(Outcome::Stopped)
}

/// Work that a turn is counted as.
fn turn_work(part: &Part) -> u64 {
    64 + part.sections() as u64 + part.len() as u64 / 8
}

fn ordered(part: &Part, by: Order) -> Vec<u32> {
    let mut order: Vec<u32> = (0..part.len() as u32).collect();
    let area = |i: usize| u128::from(part.steps[i]) * u128::from(part.bytes[i]);
    let densest =
        |i: usize| part.load[part.low[i] as usize..part.high[i] as usize].iter().copied().max().unwrap_or(0);
    order.sort_by_cached_key(|item| {
        let i = *item as usize;
        let (steps, bytes) = (u128::from(part.steps[i]), u128::from(part.bytes[i]));
        Reverse(match by {
            Order::Steps => (steps, area(i)),
            Order::Bytes => (bytes, steps),
            Order::Area => (area(i), steps),
            Order::Density => (u128::from(densest(i)), steps),
        })
    });
    order
}
