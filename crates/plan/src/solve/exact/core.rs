//! Minimal infeasible subsets, found by deletion in blocks as in [delta debugging].
//!
//! [delta debugging]: https://doi.org/10.1109/32.988498

use std::cmp::Reverse;

use super::super::budget::Budget;
use super::partition::Partition;

/// A subset of an infeasible partition's items that does not fit `height` either. It is minimal, except for items
/// whose removal takes more work than `each` to prove.
pub(super) fn minimize(
    partition: &Partition,
    height: u64,
    each: u64,
    threads: usize,
    budget: &mut Budget<'_>,
) -> Vec<u32> {
    if let Some(dense) = overloaded_section(partition, height) {
        return dense;
    }
    // Removal starts at the end, with small items: they are the least likely to matter.
    let area = |item: &u32| {
        let i = *item as usize;
        Reverse(u128::from(partition.bytes[i]) * u128::from(partition.steps[i]))
    };
    let mut kept: Vec<u32> = (0..partition.len() as u32).collect();
    kept.sort_by_key(area);
    let mut block = kept.len().div_ceil(2);
    while block > 0 {
        let mut end = kept.len();
        while end > 0 && !budget.is_spent() {
            let from = end.saturating_sub(block);
            let without: Vec<u32> = kept[..from].iter().chain(&kept[end..]).copied().collect();
            let mut share = budget.share(each);
            if let Some(None) = super::fit(&partition.only(&without), height, threads, &mut share) {
                kept = without;
            }
            budget.settle(share);
            end = from;
        }
        block = if block > 1 { block.div_ceil(2) } else { 0 };
    }
    kept.sort_unstable();
    kept
}

/// The fewest of the largest items whose sum exceeds the height.
pub(in super::super) fn exceeding(mut items: Vec<(u64, u32)>, height: u64) -> Vec<u32> {
    items.sort_by_key(|(bytes, item)| (Reverse(*bytes), *item));
    let mut sum = 0u64;
    let enough = items.iter().position(|(bytes, _)| {
        sum = sum.saturating_add(*bytes);
        sum > height
    });
    items.truncate(enough.map_or(items.len(), |last| last + 1));
    let mut items: Vec<u32> = items.into_iter().map(|(_, item)| item).collect();
    items.sort_unstable();
    items
}

fn overloaded_section(partition: &Partition, height: u64) -> Option<Vec<u32>> {
    let section = partition.load.iter().position(|load| *load > height)? as u32;
    let there =
        |item: &u32| (partition.low[*item as usize]..partition.high[*item as usize]).contains(&section);
    let items = (0..partition.len() as u32).filter(there).map(|item| (partition.bytes[item as usize], item));
    Some(exceeding(items.collect(), height))
}
