use orlop_plan::{
    BufferSpec, ChunkOffset, Plan, PlanError, Problem, SolveOptions, Strategy as Planner, Violation, bound,
    solve, verify,
};
use proptest::prelude::*;

fn buffers(most: usize) -> impl Strategy<Value = Vec<BufferSpec>> {
    let size = prop_oneof![1 => Just(0u64), 6 => 1u64..100, 3 => 100u64..600];
    let buffer = (size, 0u32..7, 0u64..30, 1u64..12)
        .prop_map(|(size, log, start, steps)| BufferSpec::new(size, 1 << log, start..start + steps));
    prop::collection::vec(buffer, 0..most)
}

/// Problems that are valid, except that a buffer may exceed the capacity.
fn problems() -> impl Strategy<Value = Problem> {
    let fixed = prop::collection::vec((any::<prop::sample::Index>(), 0u32..4, 0u64..8), 0..4);
    let max_chunk = prop::option::of(50u64..700);
    let capacity = prop::option::weighted(0.3, 200u64..3000);
    (buffers(40), fixed, max_chunk, capacity).prop_map(|(buffers, fixed, max_chunk, capacity)| {
        let mut problem = Problem { buffers, capacity: None, max_chunk };
        for (which, chunk, step) in fixed {
            if problem.buffers.is_empty() {
                break;
            }
            let which = which.index(problem.buffers.len());
            let before = problem.clone();
            let chunk = if max_chunk.is_some() { chunk } else { 0 };
            let offset = step * problem.buffers[which].align;
            problem.buffers[which].fixed = Some(ChunkOffset { chunk, offset });
            if problem.validate().is_err() {
                problem = before;
            }
        }
        Problem { capacity, ..problem }
    })
}

/// Strategies that spend all their work on one search; the portfolio gives each only a part.
const SEARCHES: [Planner; 4] = [Planner::Refine, Planner::Valley, Planner::Repair, Planner::Exact];

/// A plan with these offsets and correct numbers.
fn plan_of(problem: &Problem, places: Vec<ChunkOffset>) -> Plan {
    let count = places.iter().map(|place| place.chunk as usize + 1).max().unwrap_or(0);
    let mut chunks = vec![0; count];
    for (buffer, place) in problem.buffers.iter().zip(&places).filter(|(b, _)| b.size > 0) {
        let height: &mut u64 = &mut chunks[place.chunk as usize];
        *height = (*height).max(place.offset + buffer.footprint().expect("small sizes"));
    }
    let limit = problem.max_chunk.unwrap_or(u64::MAX);
    let over = (0u32..).zip(&chunks).filter(|(_, height)| **height > limit);
    Plan {
        oversize: over.map(|(chunk, _)| chunk).collect(),
        peak: chunks.iter().sum(),
        bound: bound(problem),
        optimal: false,
        strategy: Planner::Best,
        work: 0,
        places,
        chunks,
    }
}

/// Whether any two buffers share a byte at a step, pair by pair.
fn collides(problem: &Problem, plan: &Plan) -> bool {
    let of = |i: usize| {
        let (buffer, place) = (&problem.buffers[i], plan.places[i]);
        (
            buffer.live.clone(),
            place.chunk,
            place.offset..place.offset + buffer.footprint().expect("small sizes"),
        )
    };
    let apart = |one: &std::ops::Range<u64>, two: &std::ops::Range<u64>| {
        one.start.max(two.start) >= one.end.min(two.end)
    };
    (0..plan.places.len()).any(|i| {
        (0..i).any(|j| {
            let ((steps, chunk, bytes), (other_steps, other_chunk, other_bytes)) = (of(i), of(j));
            chunk == other_chunk && !apart(&steps, &other_steps) && !apart(&bytes, &other_bytes)
        })
    })
}

fn check(problem: &Problem, options: &SolveOptions) -> Result<(), TestCaseError> {
    let result = solve(problem, options);
    prop_assert_eq!(&solve(problem, options), &result, "equal input, equal output");
    match result {
        Ok(plan) => {
            prop_assert_eq!(verify(problem, &plan), Ok(()));
            prop_assert!(plan.peak >= bound(problem) && plan.bound == bound(problem));
            prop_assert!(plan.optimal || plan.gap() > 0);
        }
        Err(PlanError::OverCapacity { capacity, best }) => {
            prop_assert_eq!(problem.capacity, Some(capacity));
            prop_assert_eq!(
                verify(problem, &best),
                Err(Violation::OverCapacity { peak: best.peak, capacity })
            );
            prop_assert_eq!(verify(&Problem { capacity: None, ..problem.clone() }, &best), Ok(()));
        }
        Err(PlanError::Impossible { capacity, bound: least, together }) => {
            prop_assert!(capacity < least && least == bound(problem));
            prop_assert!(!together.is_empty());
        }
        Err(PlanError::NoPlan { capacity, together }) => {
            prop_assert!(problem.capacity == Some(capacity) && together.len() > 1);
            prop_assert!(matches!(options.strategy, Planner::Exact | Planner::Best));
        }
        Err(PlanError::ChunkLimit { .. }) => prop_assert_eq!(options.strategy, Planner::Ggml),
        Err(other) => prop_assert_eq!(problem.validate(), Err(other)),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn every_plan_is_legal_and_repeatable(problem in problems(), effort in prop::sample::select(vec![0u64, 1, 40])) {
        for strategy in Planner::ALL {
            check(&problem, &SolveOptions { effort, ..SolveOptions::with(strategy) })?;
        }
    }

    #[test]
    fn the_portfolio_is_no_worse_than_its_members(problem in problems()) {
        let problem = Problem { capacity: None, ..problem };
        let best = solve(&problem, &SolveOptions { effort: 400, ..SolveOptions::default() }).unwrap();
        for strategy in Planner::ALL {
            match solve(&problem, &SolveOptions { effort: 400, ..SolveOptions::with(strategy) }) {
                Ok(plan) if !SEARCHES.contains(&strategy) => {
                    prop_assert!(best.peak <= plan.peak, "{strategy}")
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_checker_agrees_with_comparing_every_pair(
        buffers in buffers(14),
        seeds in prop::collection::vec((0u32..3, 0u64..12), 14),
    ) {
        let problem = Problem { buffers, max_chunk: Some(1 << 20), capacity: None };
        let places = problem.buffers.iter().zip(&seeds).map(|(buffer, (chunk, step))| {
            ChunkOffset { chunk: *chunk, offset: step * 100 / buffer.align * buffer.align }
        });
        let plan = plan_of(&problem, places.collect());
        match verify(&problem, &plan) {
            Ok(()) => prop_assert!(!collides(&problem, &plan)),
            Err(Violation::Overlap { .. }) => prop_assert!(collides(&problem, &plan)),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn changed_numbers_are_detected(problem in problems(), which in any::<prop::sample::Index>()) {
        let problem = Problem { capacity: None, ..problem };
        prop_assume!(!problem.buffers.is_empty());
        let plan = solve(&problem, &SolveOptions { effort: 1, ..SolveOptions::default() }).unwrap();
        let i = which.index(problem.buffers.len());
        let broken = |change: &dyn Fn(&mut Plan)| {
            let mut plan = plan.clone();
            change(&mut plan);
            verify(&problem, &plan).is_err()
        };
        prop_assert!(broken(&|plan| plan.peak += 1));
        prop_assert!(broken(&|plan| plan.chunks[0] += 1));
        prop_assert!(broken(&|plan| plan.chunks.push(1)));
        prop_assert!(broken(&|plan| plan.oversize.push(9)));
        prop_assert!(broken(&|plan| plan.bound = plan.peak + 1));
        prop_assert!(broken(&|plan| plan.places.truncate(i)));
        prop_assert!(broken(&|plan| plan.places[i].chunk = plan.chunks.len() as u32));
        if problem.buffers[i].align > 1 {
            prop_assert!(broken(&|plan| plan.places[i].offset += 1));
        }
        if problem.buffers[i].fixed.is_some() {
            prop_assert!(broken(&|plan| plan.places[i].offset += problem.buffers[i].align));
        }
    }

    #[test]
    fn numbers_at_the_edge_of_64_bits_never_wrap(
        made in prop::collection::vec((0usize..8, 0usize..5, 0usize..4, any::<bool>()), 0..6),
        limits in (0usize..9, 0usize..9),
    ) {
        let sizes = [0, 1, 33, 1 << 62, (1 << 63) - 1, 1 << 63, u64::MAX - 31, u64::MAX];
        let lives = [0..1, 0..u64::MAX, u64::MAX - 1..u64::MAX, 5..9];
        let limit = |i: usize| sizes.get(i).copied();
        let mut problem = Problem { buffers: vec![], capacity: limit(limits.0), max_chunk: limit(limits.1) };
        for (size, align, live, fixed) in made {
            let align = [1, 32, 1 << 20, 1 << 62, 1 << 63][align];
            let place = ChunkOffset { chunk: 0, offset: align };
            let buffer = BufferSpec::new(sizes[size], align, lives[live].clone());
            problem.buffers.push(if fixed { buffer.fixed_at(place) } else { buffer });
        }
        for strategy in Planner::ALL {
            if let Ok(plan) = solve(&problem, &SolveOptions { effort: 10, ..SolveOptions::with(strategy) }) {
                prop_assert_eq!(verify(&problem, &plan), Ok(()));
            }
        }
    }
}

/// The sum of sizes fits one chunk, but alignment and fixed buffers leave no room there: the plan needs several.
#[test]
fn offsets_in_later_chunks_are_not_mistaken_for_the_first_chunk() {
    let fixed = BufferSpec::new(1, 1, 0..1).fixed_at(ChunkOffset { chunk: 0, offset: 1 });
    for (align, max_chunk) in [(1 << 63, u64::MAX - 31), (1 << 20, (1 << 20) + 1)] {
        let buffers = vec![BufferSpec::new(1, align, 0..1), fixed.clone()];
        let problem = Problem { buffers, capacity: None, max_chunk: Some(max_chunk) };
        for strategy in Planner::ALL {
            let plan = solve(&problem, &SolveOptions { effort: 10, ..SolveOptions::with(strategy) }).unwrap();
            assert_eq!(verify(&problem, &plan), Ok(()), "{strategy:?}");
        }
    }
}
