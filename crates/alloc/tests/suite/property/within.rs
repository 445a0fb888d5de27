//! Plans within a capacity.

use std::sync::Arc;

use orlop_alloc::{
    AddedCost, Error, FittedStep, Flags, PlanOptions, PlanWithin, ReplayFlaw, StepFacts, Unread, Usage,
    ValueId, floor, plan_memory, plan_within,
};
use orlop_testkit::Choices;
use proptest::prelude::*;

use super::usages::{random_usage, random_usage_of};
use super::{approve, numbers};
use crate::support::Foreign;

/// Random times; steps that write one view may only make it.
fn random_facts(choices: &mut Choices, usage: &Usage) -> StepFacts {
    let seconds = usage.steps().map(|_| choices.below(20) as f64).collect();
    let is_view = |id: &ValueId| usage.value(*id).root != *id;
    let only_views =
        usage.steps().map(|step| step.writes.iter().all(is_view) && choices.once_in(2)).collect();
    StepFacts { seconds, only_views, copy_bytes_per_second: choices.pick(&[4.0, 50.0, 1e9]) }
}

/// Steps that take a second each; a byte takes as long to copy as `seconds_per_byte`.
fn even_facts(usage: &Usage, seconds_per_byte: f64) -> StepFacts {
    let steps = usage.step_count();
    StepFacts {
        seconds: vec![1.0; steps],
        only_views: vec![false; steps],
        copy_bytes_per_second: 1.0 / seconds_per_byte,
    }
}

/// A result of 64 bytes that is read at the end, with larger ones in between: `x -> skip -> a -> b -> c -> end(c, skip)`.
fn skip_connection() -> Arc<Usage> {
    let mut usage = Foreign::new(Unread::Dies);
    let x = usage.flagged("x", 64, Flags { external: true, ..Flags::default() });
    let [skip, a, b, c] =
        ["skip", "a", "b", "c"].map(|name| usage.value(name, if name == "b" { 256 } else { 64 }));
    let end = usage.flagged("end", 64, Flags { output: true, ..Flags::default() });
    usage.step(&[x], &[skip]);
    usage.step(&[skip], &[a]);
    usage.step(&[a], &[b]);
    usage.step(&[b], &[c]);
    usage.step(&[c, skip], &[end]);
    usage.done()
}

fn fit(usage: &Arc<Usage>, capacity: u64, facts: &StepFacts) -> PlanWithin {
    let made = plan_within(usage, capacity, facts, &PlanOptions::default()).expect("a plan");
    assert_eq!((made.plan.check(), made.check(usage, facts)), (Ok(()), Ok(())));
    assert!(made.plan.total() <= capacity);
    made
}

#[test]
fn a_cheap_result_is_computed_again_and_an_expensive_one_is_copied() {
    let usage = skip_connection();
    assert_eq!(plan_memory(&usage, &PlanOptions::default()).unwrap().total(), 64 + 64 + 256);
    assert_eq!(floor(&usage).unwrap().bytes, 64 + 256);
    // A copy takes 64 seconds, a step one.
    let facts = even_facts(&usage, 1.0);
    let again = fit(&usage, 320, &facts);
    let run = FittedStep::Run;
    assert_eq!(again.steps, [run(0), run(1), run(2), run(3), FittedStep::Again(0), run(4)]);
    assert_eq!((again.cost.again, again.cost.seconds(), again.cost.is_cheapest), (1, 1.0, true));
    // A copy takes a 64th of a second.
    let facts = even_facts(&usage, 1.0 / 4096.0);
    let copied = fit(&usage, 320, &facts);
    assert_eq!(copied.cost.again, 0);
    assert_eq!((copied.cost.copies, copied.cost.copied_bytes, copied.cost.other_bytes), (2, 128, 64));
    assert!(matches!(copied.steps[2], FittedStep::Spill(_)), "{:?}", copied.steps);
    // One step between the last read and the peak hides nothing: the copy to other memory and back is waited for.
    assert!((copied.cost.wait_seconds - 2.0 / 64.0).abs() < 1e-9, "{:?}", copied.cost);
}

#[test]
fn a_capacity_below_the_floor_is_proven_impossible() {
    let usage = skip_connection();
    let error = plan_within(&usage, 319, &even_facts(&usage, 1.0), &PlanOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::BelowFloor { capacity: 319, floor: 320, .. }), "{error}");
    assert!(error.to_string().contains('b') && error.to_string().contains("320"));
}

#[test]
fn a_usage_with_unknown_values_is_refused() {
    let mut usage = Foreign::new(Unread::LivesOn);
    let x = usage.value("x", 64);
    usage.step(&[x, ValueId::new(7)], &[ValueId::new(8)]);
    let usage = usage.done();
    assert!(matches!(floor(&usage), Err(Error::UnknownValue { value: 7, .. })));
    let made = plan_within(&usage, 64, &even_facts(&usage, 1.0), &PlanOptions::default());
    assert!(matches!(made, Err(Error::UnknownValue { value: 7, .. })));
}

#[test]
fn a_plan_that_fits_is_left_alone() {
    let usage = skip_connection();
    let made = fit(&usage, 384, &even_facts(&usage, 1.0));
    assert_eq!(made.cost, AddedCost { is_cheapest: true, ..AddedCost::default() });
    assert_eq!(made.steps, [0, 1, 2, 3, 4].map(FittedStep::Run));
}

#[test]
fn replaying_finds_what_was_tampered_with() {
    let usage = skip_connection();
    let facts = even_facts(&usage, 1.0 / 4096.0);
    let made = fit(&usage, 320, &facts);
    let changed = |change: &dyn Fn(&mut PlanWithin)| {
        let mut changed = made.clone();
        change(&mut changed);
        changed.check(&usage, &facts)
    };
    assert!(matches!(changed(&|made| made.steps.swap(0, 1)), Err(ReplayFlaw::Lists { .. })));
    assert!(matches!(changed(&|made| made.origins.truncate(2)), Err(ReplayFlaw::Lists { .. })));
    assert!(matches!(
        changed(&|made| made.steps[0] = FittedStep::Again(0)),
        Err(ReplayFlaw::Runs { step: 0, times: 0 })
    ));
    // Copied out only after the memory was taken: the plan of the steps alone has no such copy.
    let restore =
        made.steps.iter().position(|step| matches!(step, FittedStep::Restore(_))).expect("a copy back");
    let spill = made.steps.iter().position(|step| matches!(step, FittedStep::Spill(_))).expect("a copy");
    let order: Vec<usize> = (0..made.steps.len()).filter(|at| *at != spill).collect();
    let order: Vec<usize> =
        order.into_iter().flat_map(|at| if at == restore { vec![spill, at] } else { vec![at] }).collect();
    let mut late = made.clone();
    late.steps = order.iter().map(|at| made.steps[*at]).collect();
    late.plan.usage = Arc::new(made.plan.usage.in_order(&order));
    assert!(matches!(late.check(&usage, &facts), Err(ReplayFlaw::Contents { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_within_a_capacity_compute_the_same(numbers in numbers(160), share in 0u64..=8) {
        let mut choices = Choices::new(numbers);
        let facts_choices = choices.split();
        let usage = Arc::new(random_usage_of(&mut choices, 1));
        let facts = random_facts(&mut Choices::new(facts_choices), &usage);
        let (least, total) = (floor(&usage).unwrap().bytes, plan_memory(&usage, &PlanOptions::default())?.total());
        prop_assert!(least <= total);
        let capacity = least + (total - least) * share / 8;
        match plan_within(&usage, capacity, &facts, &PlanOptions::default()) {
            Ok(made) => {
                approve(&made.plan)?;
                prop_assert_eq!(made.check(&usage, &facts), Ok(()), "{:#?}", made);
                prop_assert!(made.plan.total() <= capacity);
                prop_assert!(made.cost.seconds() >= 0.0);
            }
            Err(Error::NoPlanWithin { best, .. }) => prop_assert!(best > capacity && share < 8),
            Err(other) => prop_assert!(false, "{}", other),
        }
        if least > 0 {
            let below = plan_within(&usage, least - 1, &facts, &PlanOptions::default());
            let is_refused = matches!(below, Err(Error::BelowFloor { .. }));
            prop_assert!(is_refused);
        }
    }

    #[test]
    fn no_plan_is_below_the_floor(numbers in numbers(120)) {
        let usage = Arc::new(random_usage(&mut Choices::new(numbers)));
        let plan = plan_memory(&usage, &PlanOptions::default())?;
        prop_assert!(floor(&usage).unwrap().bytes <= plan.total(), "{:?} {:#?}", floor(&usage), plan);
    }
}
