//! Other orders of the same steps.

use std::sync::Arc;

use orlop_alloc::{
    ArenaId, Flags, GraphAllocator, OverwritePair, PlanOptions, Reordered, StepView, Unread, Usage, ValueId,
    ValueInfo, plan_memory, plan_reordered, plan_reordered_until, reorder,
};
use orlop_testkit::{Choices, Random};
use proptest::prelude::*;

use super::graphs::{random_assignment, random_graph, random_types};
use super::usages::random_usage;
use super::{approve, numbers};
use crate::support::{Foreign, arena};

/// Whether two steps must keep their order: one writes bytes that the other touches, or makes what the other names;
/// in a foreign graph also if both touch memory that has views.
fn bound_together(usage: &Usage, first: usize, second: usize) -> bool {
    let (first, second) = (usage.step(first), usage.step(second));
    let overlap = |a: ValueId, b: ValueId| {
        let (a, b) = (usage.value(a), usage.value(b));
        let (start, end) = (a.offset.max(b.offset), (a.offset + a.bytes).min(b.offset + b.bytes));
        a.root == b.root && start < end
    };
    let look_at_one = |a: ValueId, b: ValueId| {
        let root = usage.value(a).root;
        let is_view = |index: usize| index != root.index() && usage.values()[index].root == root;
        usage.unread == Unread::LivesOn
            && root == usage.value(b).root
            && (0..usage.values().len()).any(is_view)
    };
    let all = |step: &StepView<'_>| [step.reads, step.writes].concat();
    let any = |some: &[ValueId], others: &[ValueId], holds: &dyn Fn(ValueId, ValueId) -> bool| {
        some.iter().any(|a| others.iter().any(|b| holds(*a, *b)))
    };
    let makes = |a: ValueId, b: ValueId| a == b || a == usage.value(b).root || overlap(a, b);
    any(first.writes, &all(&second), &makes)
        || any(second.writes, &all(&first), &overlap)
        || any(&all(&first), &all(&second), &look_at_one)
}

/// Checks that an order is one of all steps that keeps what must be kept, and that its plan holds up and is no larger.
fn approve_order(usage: &Arc<Usage>, best: &Reordered) -> Result<(), TestCaseError> {
    let mut sorted = best.order.clone();
    sorted.sort_unstable();
    prop_assert!(sorted.into_iter().eq(0..usage.step_count()));
    let mut position = vec![0; usage.step_count()];
    best.order.iter().enumerate().for_each(|(at, step)| position[*step] = at);
    for second in 0..usage.step_count() {
        for first in 0..second {
            let turned = position[first] > position[second];
            prop_assert!(
                !turned || !bound_together(usage, first, second),
                "{first} and {second}: {usage:#?}"
            );
        }
    }
    approve(&best.plan)?;
    for (new, old) in best.plan.arenas.iter().zip(&best.given.arenas) {
        prop_assert!(new.peak <= old.peak);
    }
    prop_assert_eq!(best.gains(), best.plan.total() < best.given.total());
    prop_assert!(best.gains() || best.order.is_sorted());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn orders_of_foreign_usages_keep_what_must_be_kept_and_need_no_more(numbers in numbers(120)) {
        let usage = Arc::new(random_usage(&mut Choices::new(numbers)));
        prop_assume!(usage.validate().is_ok());
        let Ok(best) = plan_reordered(&usage, &PlanOptions::default()) else { return Ok(()) };
        approve_order(&usage, &best)?;
        prop_assert_eq!(reorder(&usage, 8), reorder(&usage, 8));
    }

    #[test]
    fn orders_of_graphs_keep_what_must_be_kept_and_need_no_more(numbers in numbers(160)) {
        let mut choices = Choices::new(numbers);
        let types = random_types(&mut choices);
        let count = types.len();
        let allocator = GraphAllocator::new(types)?;
        let assignment_choices = choices.split();
        let graph = random_graph(&mut choices, 8);
        let assignment = random_assignment(&mut Choices::new(assignment_choices), &graph, count);
        let usage = Arc::new(allocator.usage(&graph, &assignment)?);
        approve_order(&usage, &plan_reordered(&usage, &PlanOptions::default())?)?;
    }
}

/// Steps that each read one or two results of earlier ones, some of which may be done in place.
fn small_usage(choices: &mut Choices, steps: usize) -> Usage {
    let mut usage = Usage::new(vec![arena("a", 1, u64::MAX)], Unread::Dies);
    let value = |usage: &mut Usage, choices: &mut Choices, output: bool| {
        let root = ValueId::new(usage.values().len());
        let layout = choices.below(3) as u32;
        let bytes = [1, 4, 10][layout as usize] * 8;
        let flags = Flags { output, ..Flags::default() };
        usage.push_value(format!("v{}", root.index()), ValueInfo { bytes, root, offset: 0, layout, flags })
    };
    let leaf = value(&mut usage, choices, false);
    usage.leaves.push((leaf, ArenaId::new(0)));
    for step in 0..steps {
        let read = |choices: &mut Choices| ValueId::new(choices.below(step + 1));
        let reads = if choices.once_in(2) { vec![read(choices), read(choices)] } else { vec![read(choices)] };
        let pairs = (0..reads.len() as u32).map(|read| OverwritePair { write: 0, read });
        let overwrites: Vec<OverwritePair> = pairs.filter(|_| choices.once_in(3)).collect();
        let written = value(&mut usage, choices, step + 1 == steps);
        usage.push_step(StepView {
            arena: ArenaId::new(0),
            group: step as u32,
            reads: &reads,
            writes: &[written],
            overwrites: &overwrites,
        });
    }
    usage
}

/// The smallest plan over all orders.
fn optimum(usage: &Usage) -> u64 {
    fn visit(usage: &Usage, order: &mut Vec<usize>, best: &mut u64) {
        if order.len() == usage.step_count() {
            let plan =
                plan_memory(&Arc::new(usage.in_order(order)), &PlanOptions::default()).expect("a plan");
            *best = plan.total().min(*best);
        }
        for step in 0..usage.step_count() {
            let is_ready =
                (0..step).all(|first| order.contains(&first) || !bound_together(usage, first, step));
            if !order.contains(&step) && is_ready {
                order.push(step);
                visit(usage, order, best);
                order.pop();
            }
        }
    }
    let mut best = u64::MAX;
    visit(usage, &mut Vec::new(), &mut best);
    best
}

#[test]
fn orders_of_small_usages_are_nearly_always_the_best_there_are() {
    let (mut cases, mut gains, mut best_ones) = (0, 0, 0);
    let mut random = Random::new(1);
    for _ in 0..150 {
        let numbers = (0..64).map(|_| random.next() >> 33);
        let usage = Arc::new(small_usage(&mut Choices::new(numbers.collect()), 7));
        let best = plan_reordered(&usage, &PlanOptions::default()).unwrap();
        approve_order(&usage, &best).unwrap();
        let optimum = optimum(&usage);
        assert!(best.plan.total() >= optimum);
        cases += 1;
        gains += usize::from(optimum < best.given.total());
        best_ones += usize::from(best.plan.total() == optimum);
    }
    println!("{best_ones} of {cases} are the best there are; {gains} could gain");
    assert!(gains * 4 > cases, "only {gains} could gain");
    assert!(best_ones * 100 >= cases * 98, "only {best_ones} of {cases}");
}

#[test]
fn a_stop_ends_the_search_for_an_order_too() {
    let mut random = Random::new(1);
    let mut gains = 0;
    for _ in 0..20 {
        let numbers = (0..64).map(|_| random.next() >> 33);
        let usage = Arc::new(small_usage(&mut Choices::new(numbers.collect()), 7));
        gains += usize::from(plan_reordered(&usage, &PlanOptions::default()).unwrap().gains());
        let stopped = plan_reordered_until(&usage, &PlanOptions::default(), &|| true).unwrap();
        approve_order(&usage, &stopped).unwrap();
        assert!(!stopped.gains());
    }
    assert!(gains > 0);
}

#[test]
fn sizes_whose_sum_is_beyond_64_bits_have_an_order() {
    let huge = u64::MAX - 31;
    let mut g = Foreign::new(Unread::LivesOn);
    let x = g.leaf("x", 64);
    let large: Vec<ValueId> = (0..4).map(|n| g.value(&format!("large{n}"), huge)).collect();
    large.iter().for_each(|id| g.step(&[x], &[*id]));
    let small: Vec<ValueId> = large
        .iter()
        .map(|read| {
            let [same, small] = [("same", huge), ("small", 64)].map(|(name, bytes)| g.value(name, bytes));
            g.step_with(&[*read], &[same], &[0]);
            g.step(&[*read, same], &[small]);
            small
        })
        .collect();
    let end = g.value("end", 64);
    g.step(&[&large[..2], &small].concat(), &[end]);
    let usage = g.done();
    for effort in [0, 8, 1000] {
        let mut order = reorder(&usage, effort);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..usage.step_count()));
    }
    assert!(plan_reordered(&usage, &PlanOptions::default()).is_err(), "there is no plan");
}
