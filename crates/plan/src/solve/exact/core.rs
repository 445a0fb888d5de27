//! Why a height does not suffice: a few items that do not fit it together.

use std::cmp::Reverse;

use super::super::budget::Budget;
use super::part::Part;

/// Items of `part`, which do not fit `height`, that do not fit it by themselves either. No item of the result can
/// be left out, unless it takes more work than `each` to see that.
pub(super) fn shrink(part: &Part, height: u64, each: u64, budget: &mut Budget<'_>) -> Vec<u32> {
    if let Some(dense) = at_one_section(part, height) {
        return dense;
    }
    // Small items last, where leaving out begins: they are the least likely to matter.
    let area = |item: &u32| {
        let i = *item as usize;
        Reverse(u128::from(part.bytes[i]) * u128::from(part.steps[i]))
    };
    let mut kept: Vec<u32> = (0..part.len() as u32).collect();
    kept.sort_by_key(area);
    let mut block = kept.len().div_ceil(2);
    while block > 0 {
        let mut end = kept.len();
        while end > 0 && !budget.is_spent() {
            let from = end.saturating_sub(block);
            let without: Vec<u32> = kept[..from].iter().chain(&kept[end..]).copied().collect();
            let mut share = budget.share(each);
            if let Some(None) = super::fit(&part.only(&without), height, &mut share) {
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

/// The largest items of a section that already exceed the height.
pub(in super::super) fn too_much(mut items: Vec<(u64, u32)>, height: u64) -> Vec<u32> {
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

fn at_one_section(part: &Part, height: u64) -> Option<Vec<u32>> {
    let section = part.load.iter().position(|load| *load > height)? as u32;
    let there = |item: &u32| (part.low[*item as usize]..part.high[*item as usize]).contains(&section);
    let items = (0..part.len() as u32).filter(there).map(|item| (part.bytes[item as usize], item));
    Some(too_much(items.collect(), height))
}
