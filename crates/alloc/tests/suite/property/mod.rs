//! What holds for every graph, every usage and every plan.

mod graphs;
mod oracle;
mod orders;
mod usages;
mod within;

use std::sync::Arc;

use orlop_alloc::{
    Assignment, Externals, GraphAllocator, MemoryPlan, PlanOptions, PlannedStorage, Sharing, StepView, Usage,
    ValueInfo, plan_as_ggml, plan_like_ggml, plan_memory,
};
use orlop_plan::{BufferSpec, Problem, SolveOptions, Strategy, bound};
use orlop_testkit::Choices;
use proptest::prelude::*;

use crate::support::Notes;
use graphs::{random_assignment, random_graph, random_types};
use oracle::naive_check;
use usages::random_usage;

const SHARINGS: [Sharing; 4] = [Sharing::None, Sharing::Direct, Sharing::Tight, Sharing::Full];

fn options(strategy: Strategy, sharing: Sharing) -> PlanOptions {
    PlanOptions { search: SolveOptions { effort: 4, ..SolveOptions::with(strategy) }, sharing }
}

fn numbers(most: usize) -> impl proptest::strategy::Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 0..most)
}

/// Checks a plan by both checkers, and what it says of itself.
fn approve(plan: &MemoryPlan) -> Result<(), TestCaseError> {
    prop_assert_eq!(plan.check(), Ok(()), "{:#?}", plan);
    prop_assert_eq!(naive_check(plan), Ok(()), "{:#?}", plan);
    for (index, arena) in plan.arenas.iter().enumerate() {
        prop_assert_eq!(arena.peak, arena.chunks.iter().sum::<u64>());
        prop_assert!(!arena.optimal || arena.peak <= arena.bound);
        let mine = plan.storages.iter().filter(|storage| storage.place.arena.index() == index);
        let buffer = |storage: &PlannedStorage| {
            BufferSpec::new(storage.bytes, 1, storage.live.start as u64..storage.live.end as u64)
        };
        let problem = Problem { buffers: mine.map(buffer).collect(), ..Problem::default() };
        prop_assert_eq!(arena.bound, bound(&problem));
    }
    Ok(())
}

/// Plans a usage in every way.
fn approve_all(usage: &Arc<Usage>) -> Result<(), TestCaseError> {
    let ggml = plan_as_ggml(usage)?;
    approve(&ggml)?;
    let alike = plan_like_ggml(usage, &SolveOptions::default(), &|_, _| false)?;
    approve(&alike)?;
    prop_assert_eq!(&alike.decisions, &ggml.decisions);
    for (info, (alike, ggml)) in usage.arenas.iter().zip(alike.arenas.iter().zip(&ggml.arenas)) {
        // Only chunks beyond the largest buffer are worth more memory.
        prop_assert!(alike.peak <= ggml.peak || ggml.chunks.iter().any(|chunk| *chunk > info.max_chunk));
    }
    for (alike, ggml) in alike.arenas.iter().zip(&ggml.arenas) {
        // Nothing is searched where ggml's own places reach the bound.
        prop_assert!(!ggml.optimal || !ggml.oversize.is_empty() || alike.strategy == Strategy::Ggml);
    }
    let kept = plan_like_ggml(usage, &SolveOptions::default(), &|_, _| true)?;
    approve(&kept)?;
    prop_assert_eq!(&kept.arenas, &ggml.arenas);
    let online = plan_memory(usage, &PlanOptions::GGML)?;
    approve(&online)?;
    for sharing in SHARINGS {
        for strategy in [Strategy::Ggml, Strategy::Size, Strategy::Best] {
            let plan = plan_memory(usage, &options(strategy, sharing))?;
            approve(&plan)?;
            let shrinks = plan.decisions.iter().any(|decision| {
                let bytes = |id| usage.value(id).bytes;
                decision.verdict.is_taken() && bytes(decision.value) < bytes(decision.operand)
            });
            for (arena, online) in plan.arenas.iter().zip(&online.arenas) {
                prop_assert!(arena.peak >= arena.bound || shrinks);
                if strategy == Strategy::Best && sharing != Sharing::None {
                    prop_assert!(arena.peak <= online.peak);
                }
            }
        }
    }
    let best = options(Strategy::Best, Sharing::Full);
    prop_assert_eq!(plan_memory(usage, &best)?, plan_memory(&Arc::new(Usage::clone(usage)), &best)?);
    Ok(())
}

/// The same usage with some values changed.
fn with_values(usage: &Usage, mut change: impl FnMut(usize, &mut ValueInfo)) -> Usage {
    let mut changed = Usage::new(usage.arenas.clone(), usage.unread);
    changed.leaves.clone_from(&usage.leaves);
    for (index, value) in usage.values().iter().enumerate() {
        let mut value = *value;
        change(index, &mut value);
        changed.push_value(usage.name(orlop_alloc::ValueId::new(index)), value);
    }
    for step in usage.steps() {
        changed.push_step(StepView { ..step });
    }
    changed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_of_a_graph_is_legal_and_repeatable(numbers in numbers(160)) {
        let mut choices = Choices::new(numbers);
        let allocator = GraphAllocator::new(random_types(&mut choices))?;
        let assignment_choices = choices.split();
        let graph = random_graph(&mut choices, 8);
        let assignment = random_assignment(&mut Choices::new(assignment_choices), &graph, allocator_types(&allocator));
        let usage = Arc::new(allocator.usage(&graph, &assignment)?);
        approve_all(&usage)?;
    }

    #[test]
    fn every_plan_of_a_foreign_usage_is_legal_and_repeatable(numbers in numbers(160)) {
        let usage = Arc::new(random_usage(&mut Choices::new(numbers)));
        prop_assert_eq!(usage.validate(), Ok(()));
        approve_all(&usage)?;
    }

    #[test]
    fn the_checker_agrees_with_comparing_every_pair(
        numbers in numbers(120),
        which in any::<prop::sample::Index>(),
        change in 0..5,
    ) {
        let usage = Arc::new(random_usage(&mut Choices::new(numbers)));
        let mut plan = plan_memory(&usage, &options(Strategy::Best, Sharing::Full))?;
        if usage.values().is_empty() {
            return Ok(());
        }
        let which = which.index(usage.values().len());
        plan.usage = Arc::new(with_values(&usage, |index, value| {
            if index == which {
                match change {
                    0 => value.bytes += 40,
                    1 => value.flags.output = true,
                    2 => value.layout += 100,
                    3 => value.flags.input = true,
                    _ => value.flags.external ^= true,
                }
            }
        }));
        if plan.usage.validate().is_err() {
            prop_assert!(plan.check().is_err());
        } else {
            prop_assert_eq!(plan.check().is_ok(), naive_check(&plan).is_ok(), "{:?}", plan.check());
        }
    }

    #[test]
    fn smaller_copies_of_a_reserved_graph_are_never_planned_anew(numbers in numbers(120)) {
        let mut choices = Choices::new(numbers);
        let notes = Notes::default();
        let mut allocator =
            GraphAllocator::new(random_types(&mut choices))?.with_options(options(Strategy::Best, Sharing::Full)).with_observer(notes.observer());
        let assignment_choices = choices.split();
        let graph_choices = choices.split();
        let copy = |unit| random_graph(&mut Choices::new(graph_choices.clone()), unit);
        let graph = copy(8);
        let types = allocator_types(&allocator);
        let assignment = random_assignment(&mut Choices::new(assignment_choices), &graph, types);
        if allocator.reserve_with(&graph, &assignment).is_err() {
            // Too large for one of the types.
            return Ok(());
        }
        notes.take();
        for unit in [8, 7, 3, 1, 8] {
            let graph = copy(unit);
            let allocation = allocator.alloc_with(&graph, &assignment, &Externals::new())?;
            prop_assert_eq!(notes.take(), vec![]);
            for (id, slot) in graph.tensor_ids().zip(allocation.slots()) {
                if let Some(slot) = slot {
                    prop_assert!(slot.offset + graph.tensor(id).desc.bytes() <= slot.buffer.bytes());
                }
            }
            // The sizes in force are legal, too, not only the reserved ones.
            let mut plan = MemoryPlan::clone(allocation.plan());
            plan.usage = Arc::new(allocator.usage(&graph, &assignment)?);
            prop_assert_eq!(naive_check_sizes(&plan), Ok(()));
        }
    }
}

fn allocator_types(allocator: &GraphAllocator) -> usize {
    (0..).take_while(|index| allocator.buffer_bytes(*index).is_ok()).count()
}

/// Views may lie elsewhere in their roots than they did in the plan.
fn naive_check_sizes(plan: &MemoryPlan) -> Result<(), String> {
    oracle::naive_overlaps(plan)
}

#[test]
fn an_assignment_of_nothing_is_the_first_buffer_everywhere() {
    let mut choices = Choices::new((0..100).map(|i| i * 7919).collect());
    let graph = random_graph(&mut choices, 8);
    let allocator = GraphAllocator::new([crate::support::host(8, u64::MAX)]).unwrap();
    let spelled = Assignment {
        nodes: Some(vec![0; graph.nodes().len()]),
        leaves: Some(vec![0; graph.leaves().count()]),
        order: Some(graph.order()),
    };
    let usages = [Assignment::default(), spelled].map(|assignment| allocator.usage(&graph, &assignment));
    assert_eq!(usages[0], usages[1]);
}
