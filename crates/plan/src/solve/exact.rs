//! Exact search: a plan within a height, or a proof that none exists. See `exact/README.md` for the terms.

pub(super) mod core;
mod decision_sets;
mod partition;
mod round;
mod search;

use std::cmp::Reverse;
use std::ops::Range;

use super::budget::Budget;
use super::sections::{AddressSpace, Sections};
use partition::Partition;
use search::{Branching, Outcome, Search};

/// The result for one height.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FitResult {
    /// An address per item.
    Fits(Vec<u64>),
    /// Proven infeasible: the items of one partition do not fit.
    Impossible(Vec<u32>),
    /// The budget was spent before a result.
    Unknown,
}

/// A problem split into partitions that share no section.
#[derive(Debug)]
pub(super) struct Exact {
    partitions: Vec<(usize, Partition)>,
    items: usize,
    /// Heights above this are not searched.
    pub(super) max_height: u64,
    /// Whether a height that is infeasible here is infeasible for every plan.
    pub(super) proves: bool,
    /// Threads that searches are spread over. The result is the same for any number.
    threads: usize,
}

/// The order in which candidates are tried, largest first.
#[derive(Clone, Copy, Debug)]
enum ValueOrder {
    Steps,
    Bytes,
    Area,
    Density,
}

/// A portfolio of searches that take turns with restarts: each solves some problems at once and others never. The
/// number multiplies the nodes of a turn.
const SEARCHES: [(ValueOrder, Branching, u64); 7] = [
    (ValueOrder::Steps, Branching::DomWdeg, 3),
    (ValueOrder::Area, Branching::MinDomain, 1),
    (ValueOrder::Bytes, Branching::LowestFloor, 1),
    (ValueOrder::Density, Branching::DomWdeg, 1),
    (ValueOrder::Steps, Branching::LowestFloor, 1),
    (ValueOrder::Bytes, Branching::DomWdeg, 1),
    (ValueOrder::Area, Branching::DomWdeg, 1),
];

/// Limit on the memory of the decision sets of a partition.
const MAX_BYTES: usize = 1 << 28;
/// Minimal work for each attempt to drop items from a core.
const EASY_WORK: u64 = 1 << 20;

impl Exact {
    /// `None` if a partition is too large to search. `limited`: the problem has a chunk limit, even if all items fit
    /// one chunk.
    pub(super) fn new(all: &Sections, limited: bool, threads: usize) -> Option<Self> {
        let bound = all.load.iter().copied().max().unwrap_or(0);
        let at_foot = |max: u64| all.fixed.iter().flatten().all(|address| *address < max);
        // Within one chunk no item can cross a chunk border.
        let one = all.space.max_chunk.filter(|max| bound <= *max && at_foot(*max));
        let space = if one.is_some() { AddressSpace::default() } else { all.space };
        let spans = all.partitions();
        let bytes = |(sections, items): &(Range<usize>, Range<usize>)| {
            let depth = 2 * items.len();
            (depth / 8).saturating_mul(sections.len() + depth)
        };
        if spans.iter().any(|span| bytes(span) > MAX_BYTES) {
            return None;
        }
        let partition = |(sections, items): (Range<usize>, Range<usize>)| {
            (items.start, Partition::new(all, space, sections, items))
        };
        let partitions: Vec<(usize, Partition)> = spans.into_iter().map(partition).collect();
        // Stacking all chunks gives one chunk of the same height if alignments allow it.
        let proves = space.max_chunk.is_none()
            && (!limited || partitions.iter().all(|(_, partition)| partition.plain));
        Some(Self { partitions, items: all.len(), max_height: one.unwrap_or(u64::MAX), proves, threads })
    }

    /// The granularity of heights.
    pub(super) fn unit(&self) -> u64 {
        self.partitions.iter().map(|(_, partition)| partition.unit()).fold(0, partition::gcd).max(1)
    }

    /// Searches for a plan within `height`. Partitions that fit it in `known` keep their addresses.
    pub(super) fn fit(&self, height: u64, known: Option<&[u64]>, budget: &mut Budget<'_>) -> FitResult {
        let mut addresses = vec![0; self.items];
        for (first, partition) in &self.partitions {
            let span = *first..*first + partition.len();
            let within = |known: &&[u64]| {
                known[span.clone()]
                    .iter()
                    .zip(&partition.bytes)
                    .all(|(at, bytes)| at.saturating_add(*bytes) <= height)
            };
            if let Some(known) = known.filter(within) {
                addresses[span.clone()].copy_from_slice(&known[span]);
                continue;
            }
            match fit(partition, height, self.threads, budget) {
                Some(Some(found)) => addresses[span].copy_from_slice(&found),
                Some(None) => return FitResult::Impossible((span.start as u32..span.end as u32).collect()),
                None => return FitResult::Unknown,
            }
        }
        FitResult::Fits(addresses)
    }

    /// A small subset of `items`, those of an infeasible partition, that does not fit `height`. Its proof took `proof`
    /// work.
    pub(super) fn conflict(
        &self,
        height: u64,
        items: &[u32],
        proof: u64,
        budget: &mut Budget<'_>,
    ) -> Vec<u32> {
        let Some(first) = items.first() else { return vec![] };
        let found = self.partitions.iter().find(|(start, _)| *start == *first as usize);
        let Some((_, partition)) = found else { return items.to_vec() };
        let each = EASY_WORK.saturating_add(2 * proof);
        let mut share = budget.share(each.saturating_mul(2 * partition.len() as u64));
        let few = core::minimize(partition, height, each, self.threads, &mut share);
        budget.settle(share);
        few.into_iter().map(|item| item + first).collect()
    }
}

/// `Some(None)` if a partition is proven not to fit the height, `None` if the budget is spent.
fn fit(
    partition: &Partition,
    height: u64,
    threads: usize,
    budget: &mut Budget<'_>,
) -> Option<Option<Vec<u64>>> {
    if partition.bound() > height {
        return Some(None);
    }
    let orders: Vec<Vec<u32>> = SEARCHES.iter().map(|(order, ..)| ordered(partition, *order)).collect();
    let mut searches: Vec<Search> = SEARCHES
        .iter()
        .zip(&orders)
        .map(|((_, branching, _), order)| Search::new(partition, height, order, *branching))
        .collect();
    let mut nodes = 2 * partition.len() as u64 + 64;
    loop {
        match round::run(&mut searches, nodes, threads, partition, budget)? {
            Some((search, Outcome::Found)) => return Some(Some(searches[search].addresses().to_vec())),
            Some(_) => return Some(None),
            None => searches.iter_mut().for_each(Search::restart),
        }
        nodes = nodes.saturating_mul(2);
    }
}

fn ordered(partition: &Partition, by: ValueOrder) -> Vec<u32> {
    let mut order: Vec<u32> = (0..partition.len() as u32).collect();
    let area = |i: usize| u128::from(partition.steps[i]) * u128::from(partition.bytes[i]);
    let densest = |i: usize| {
        partition.load[partition.low[i] as usize..partition.high[i] as usize]
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
    };
    order.sort_by_cached_key(|item| {
        let i = *item as usize;
        let (steps, bytes) = (u128::from(partition.steps[i]), u128::from(partition.bytes[i]));
        Reverse(match by {
            ValueOrder::Steps => (steps, area(i)),
            ValueOrder::Bytes => (bytes, steps),
            ValueOrder::Area => (area(i), steps),
            ValueOrder::Density => (u128::from(densest(i)), steps),
        })
    });
    order
}
