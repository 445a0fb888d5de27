//! Plans within a capacity that no plan of the steps alone meets: values that are idle where memory is short are computed
//! again later, or copied to other memory and back.
//!
//! The way: [`profile`] lists the **gaps**, in which a value is idle. [`choose`] selects the cheapest gaps that bring every
//! step below a target. [`rewrite`] adds the steps that end and begin them, and the result is planned like any usage. If that
//! plan is too large, the target falls. [`replay`] checks the result by executing both step lists on symbolic values.

mod choose;
mod profile;
mod replay;
mod rewrite;

use std::ops::Range;
use std::sync::Arc;

use crate::{
    Error, MemoryPlan, PlanOptions, Unread, Usage, ValueId, plan_memory_until, plan_reordered_until,
};
use profile::Profile;
pub use replay::ReplayFlaw;

/// Facts about steps that a usage does not have: what computing and copying cost.
#[derive(Clone, Debug, PartialEq)]
pub struct StepFacts {
    /// Estimated seconds of each step.
    pub seconds: Vec<f64>,
    /// The steps that only make a view and write nothing.
    pub only_views: Vec<bool>,
    /// Rate of copies to other memory and back, one after the other.
    pub copy_bytes_per_second: f64,
}

impl StepFacts {
    /// The facts of steps in another order; missing ones are those of a step that takes no time.
    fn in_order(&self, order: &[usize]) -> StepFacts {
        let seconds = order.iter().map(|step| self.seconds.get(*step).copied().unwrap_or(0.0)).collect();
        let only_views = order.iter().map(|step| self.is_only_view(*step)).collect();
        StepFacts { seconds, only_views, ..*self }
    }

    fn is_only_view(&self, step: usize) -> bool {
        self.only_views.get(step).copied().unwrap_or(false)
    }
}

/// A step of a [`PlanWithin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FittedStep {
    /// The step of that number of the given usage.
    Run(usize),
    /// That step again, from the same operands.
    Again(usize),
    /// Copies a value of the plan's usage to other memory.
    Spill(ValueId),
    /// Copies a value of the plan's usage back.
    Restore(ValueId),
}

/// What a [`PlanWithin`] adds to the given steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AddedCost {
    /// Steps that run again, and their seconds.
    pub again: usize,
    /// See [`Self::again`].
    pub again_seconds: f64,
    /// Copies to other memory and back.
    pub copies: usize,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Seconds that steps wait for them. Copies in one direction follow each other; otherwise they overlap with steps.
    pub wait_seconds: f64,
    /// Most bytes that lie in other memory at once.
    pub other_bytes: u64,
    /// Proven: by the estimate that gaps are chosen by, no cheaper choice of them meets the capacity in this order.
    pub is_cheapest: bool,
}

impl AddedCost {
    /// All added seconds.
    pub fn seconds(&self) -> f64 {
        self.again_seconds + self.wait_seconds
    }
}

/// A plan within a capacity.
#[derive(Clone, Debug)]
pub struct PlanWithin {
    /// The plan, whose usage has the added steps and values.
    pub plan: MemoryPlan,
    /// For each step of the plan's usage, what it is.
    pub steps: Vec<FittedStep>,
    /// For each value of the plan's usage, the value of the given usage that it holds.
    pub origins: Vec<ValueId>,
    /// What the added steps cost.
    pub cost: AddedCost,
}

/// The least memory of any plan, whatever is computed again or copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Bytes.
    pub bytes: u64,
    /// The step whose own operands and results they are; `None`: what is set before the first step, or read after the last.
    pub step: Option<usize>,
}

/// Attempts with lower targets, as plans may be larger than the bytes in use.
const ATTEMPTS: u32 = 12;

/// The floor of a usage, over all arenas.
///
/// No plan is smaller, because a step needs its operands and results at once, except for a result that may take the place of
/// an operand.
///
/// # Errors
/// What [`Usage::validate`] refuses.
pub fn floor(usage: &Usage) -> Result<Floor, Error> {
    usage.validate()?;
    Ok(profile::floor(usage))
}

/// Plans a usage of one arena within `capacity` bytes. Reorders steps if that helps; where that is not enough, runs cheap
/// steps again or copies values to other memory and back, whichever is estimated to take less time.
///
/// # Errors
/// As [`plan_memory`](super::plan_memory); [`Error::SeveralArenas`]; [`Error::BelowFloor`] if the capacity is proven too small;
/// [`Error::NoPlanWithin`] if no plan was found.
pub fn plan_within(
    usage: &Arc<Usage>,
    capacity: u64,
    facts: &StepFacts,
    options: &PlanOptions,
) -> Result<PlanWithin, Error> {
    plan_within_until(usage, capacity, facts, options, &|| false)
}

/// [`plan_within`], but `stop` is asked every now and then, and the search ends soon after it says yes.
///
/// # Errors
/// As [`plan_within`].
pub fn plan_within_until(
    usage: &Arc<Usage>,
    capacity: u64,
    facts: &StepFacts,
    options: &PlanOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<PlanWithin, Error> {
    let floor = floor(usage)?;
    if floor.bytes > capacity {
        let step = floor.step.and_then(|step| usage.step(step).writes.first().copied());
        let at =
            step.map_or_else(|| "all inputs or outputs".to_owned(), |value| usage.name(value).to_owned());
        return Err(Error::BelowFloor { capacity, floor: floor.bytes, at });
    }
    if usage.arenas.len() != 1 {
        return Err(Error::SeveralArenas { arenas: usage.arenas.len() });
    }
    // Writes of different parts of a value may change places; replaying does not tell parts apart.
    let is_part = |id: &ValueId| usage.value(*id).root != *id && !usage.value(*id).flags.marker;
    let has_parts = usage.unread == Unread::Dies && usage.steps().any(|step| step.writes.iter().any(is_part));
    let reordered = match has_parts {
        true => None,
        false => Some(plan_reordered_until(usage, options, stop)?),
    };
    let given = || (0..usage.step_count()).collect::<Vec<usize>>();
    let orders = match reordered {
        None => vec![(given(), plan_memory_until(usage, options, stop)?)],
        Some(reordered) if reordered.order.is_sorted() => vec![(given(), reordered.given)],
        Some(reordered) => vec![(reordered.order, reordered.plan), (given(), reordered.given)],
    };
    let mut best: Option<PlanWithin> = None;
    let mut least = u64::MAX;
    for (order, plan) in orders {
        least = least.min(plan.total());
        match within(&plan, &order, capacity, facts, options, stop)? {
            Ok(found) if best.as_ref().is_none_or(|best| found.cost.seconds() < best.cost.seconds()) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(peak) => least = least.min(peak),
        }
    }
    best.ok_or(Error::NoPlanWithin { capacity, best: least })
}

/// A plan of the steps in one order, or the smallest peak found. `order` gives each step's number in the given usage.
fn within(
    plan: &MemoryPlan,
    order: &[usize],
    capacity: u64,
    facts: &StepFacts,
    options: &PlanOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Result<PlanWithin, u64>, Error> {
    let number = |step: FittedStep| match step {
        FittedStep::Run(step) => FittedStep::Run(order[step]),
        FittedStep::Again(step) => FittedStep::Again(order[step]),
        other => other,
    };
    if plan.total() <= capacity {
        let steps = order.iter().map(|step| FittedStep::Run(*step)).collect();
        let origins = (0..plan.usage.values().len()).map(ValueId::new).collect();
        let cost = AddedCost { is_cheapest: true, ..AddedCost::default() };
        return Ok(Ok(PlanWithin { plan: plan.clone(), steps, origins, cost }));
    }
    let facts = facts.in_order(order);
    let profile = Profile::of(&plan.usage, plan.arenas[0].sharing, &facts);
    let (mut target, mut least) = (capacity, plan.total());
    for _ in 0..ATTEMPTS {
        if stop() {
            break;
        }
        let Some(chosen) = choose::choose(&profile, target) else { break };
        let mut fitted = rewrite::rewrite(&plan.usage, &profile, &chosen, &facts);
        // A lower target excludes choices that meet the capacity.
        fitted.cost.is_cheapest &= target == capacity;
        let made = plan_memory_until(&Arc::new(fitted.usage), options, stop)?;
        let peak = made.total();
        if peak <= capacity {
            let steps = fitted.steps.into_iter().map(number).collect();
            return Ok(Ok(PlanWithin { plan: made, steps, origins: fitted.origins, cost: fitted.cost }));
        }
        least = least.min(peak);
        target = target.saturating_sub((peak - capacity).max(capacity / 512).max(1));
    }
    Ok(Err(least))
}

impl PlanWithin {
    /// Checks that the added steps change no result, by other means than they were found: both step lists are executed on
    /// symbolic values, the plan's at its addresses.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, given: &Usage, facts: &StepFacts) -> Result<(), ReplayFlaw> {
        replay::check(self, given, facts)
    }
}

/// The units of a usage: its groups, whose memory is given back together.
fn units(usage: &Usage) -> Vec<Range<usize>> {
    usage.groups().collect()
}
