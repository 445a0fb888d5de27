//! Other orders of the same work, for less memory.
//!
//! [`reorder`] is a pure function from a usage to an order of its steps. What must come before what are data edges
//! and storage edges ([`edges`]). Where every order passes through the same point the usage falls apart into
//! blocks ([`block`]); each block is searched by itself ([`search`]), the one that needs most first, until one
//! cannot be lowered: no other can then change the whole.

mod block;
mod bound;
mod edges;
mod effort;
mod search;
mod state;

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use crate::{Error, MemoryPlan, PlanOptions, Usage, plan_memory_until};
use block::{Block, Roots};
use effort::Effort;

/// Whether steps may change places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StepOrder {
    /// Where the plan gets smaller by it and the device has nothing against it.
    #[default]
    Smallest,
    /// Never: steps run as they were given.
    Given,
}

/// A usage of fewer steps is given the work of this number.
const FEW_STEPS: u64 = 200;

/// The plans of a usage in the order that was given and in the best one found.
#[derive(Clone, Debug)]
pub struct Reordered {
    /// The steps of the given usage, in the new order.
    pub order: Vec<usize>,
    /// The plan of the usage in that order.
    pub plan: MemoryPlan,
    /// The plan of the usage as it was given.
    pub given: MemoryPlan,
}

impl Reordered {
    /// Whether anything was gained; the order is the given one otherwise.
    pub fn gains(&self) -> bool {
        self.plan.total() < self.given.total()
    }
}

/// Plans a usage in its own order and in a better one, and keeps the smaller plan: no arena gets larger.
///
/// # Errors
/// As [`crate::plan_memory`].
pub fn plan_reordered(usage: &Arc<Usage>, options: &PlanOptions) -> Result<Reordered, Error> {
    plan_reordered_until(usage, options, &|| false)
}

/// [`plan_reordered`], but `stop` is asked every now and then, and the best plan so far comes back soon after it
/// says yes.
///
/// # Errors
/// As [`crate::plan_memory`].
pub fn plan_reordered_until(
    usage: &Arc<Usage>,
    options: &PlanOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Reordered, Error> {
    let given = plan_memory_until(usage, options, stop)?;
    let same = || (0..usage.step_count()).collect();
    let order = reorder_until(usage, options.search.effort, stop);
    if order.is_sorted() {
        return Ok(Reordered { order, plan: given.clone(), given });
    }
    let plan = plan_memory_until(&Arc::new(usage.in_order(&order)), options, stop)?;
    let no_arena_larger = plan.arenas.iter().zip(&given.arenas).all(|(new, old)| new.peak <= old.peak);
    Ok(if no_arena_larger && plan.total() < given.total() {
        Reordered { order, plan, given }
    } else {
        Reordered { order: same(), plan: given.clone(), given }
    })
}

/// An order of a valid usage's steps in which fewer bytes are in use at once, within all dependencies; the given
/// order where none was found. Equal usages have equal orders.
///
/// `effort` is the work allowed per step, in units of about one look at a step that could be next; a usage of few
/// steps is given the work of two hundred. Steps of different arenas, what belongs to a group, and steps that copy
/// between arenas stay where they are; only steps between them change places.
pub fn reorder(usage: &Usage, effort: u64) -> Vec<usize> {
    reorder_until(usage, effort, &|| false)
}

/// [`reorder`], but `stop` is asked every now and then, and the best order so far comes back soon after it says yes.
fn reorder_until(usage: &Usage, effort: u64, stop: &dyn Fn() -> bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..usage.step_count()).collect();
    let before = edges::predecessors(usage);
    let roots = Roots::of(usage);
    let needs = roots.needs(usage);
    let mut effort = Effort::new(effort.saturating_mul(FEW_STEPS.max(usage.step_count() as u64)), stop);
    let most = |range: Range<usize>| needs[range].iter().copied().max().unwrap_or(0);
    // By arena, what is needed whatever the rest does: by steps that stay where they are, and by blocks that were
    // searched in vain.
    let mut floors = vec![0; usage.arenas.len()];
    let mut ranges: Vec<(u64, Range<usize>)> = Vec::new();
    let mut end = 0;
    for run in edges::movable(usage) {
        raise(&mut floors, usage, end..run.start, &needs);
        end = run.end;
        ranges.extend(edges::pieces(&before, run).into_iter().map(|range| (most(range.clone()), range)));
    }
    raise(&mut floors, usage, end..usage.step_count(), &needs);
    ranges.sort_by_key(|(peak, range)| (Reverse(*peak), range.start));
    for (peak, range) in ranges {
        if effort.is_stopped() {
            break;
        }
        let floor = &mut floors[usage.step(range.start).arena.index()];
        if peak <= *floor {
            continue;
        }
        if range.len() == 1 {
            *floor = peak;
            continue;
        }
        let block = Block::new(usage, &roots, range, &before);
        let found = search::best_order(&block, *floor, &mut effort);
        *floor = found.peak.max(*floor);
        for (at, step) in block.range.clone().zip(found.order) {
            order[at] = block.range.start + step;
        }
    }
    order
}

/// Takes what steps need into the floors of their arenas.
fn raise(floors: &mut [u64], usage: &Usage, steps: Range<usize>, needs: &[u64]) {
    for step in steps {
        let floor = &mut floors[usage.step(step).arena.index()];
        *floor = needs[step].max(*floor);
    }
}
