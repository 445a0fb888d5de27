//! The exact search against exhaustive enumeration.

use orlop_plan::{
    BufferId, BufferSpec, ChunkOffset, Plan, PlanError, Problem, SolveOptions, Strategy as Planner, bound,
    solve, verify,
};
use orlop_testkit::Random;
use proptest::prelude::*;

fn tiny() -> impl Strategy<Value = Problem> {
    let size = prop_oneof![3 => 1u64..8, 2 => 8u64..20, 1 => prop::sample::select(vec![4u64, 6, 10])];
    let buffer = (size, prop::sample::select(vec![0u32, 0, 0, 1, 2]), 0u64..7, 1u64..5)
        .prop_map(|(size, log, start, steps)| BufferSpec::new(size, 1 << log, start..start + steps));
    let fixed = prop::option::weighted(0.25, (any::<prop::sample::Index>(), 0u64..6));
    (prop::collection::vec(buffer, 1..7), any::<bool>(), fixed).prop_map(|(mut buffers, plain, fixed)| {
        if plain {
            buffers.iter_mut().for_each(|buffer| buffer.align = 1);
        }
        if let Some((which, step)) = fixed {
            let which = which.index(buffers.len());
            let offset = step * buffers[which].align;
            buffers[which].fixed = Some(ChunkOffset { chunk: 0, offset });
        }
        Problem { buffers, ..Problem::default() }
    })
}

/// Variations of seven buffers with a bound of 6 bytes and an optimum of 7.
fn awkward() -> impl Strategy<Value = Problem> {
    let made = [(6..9, 3), (0..2, 3), (3..6, 2), (2..5, 2), (1..3, 3), (5..9, 3), (2..6, 1)];
    let more = prop::collection::vec((0u64..8, 1u64..4, 1u64..3), 0..3);
    let change = prop::option::of((0usize..7, 1u64..4));
    (more, change, 1u64..4, any::<bool>()).prop_map(move |(more, change, times, mirrored)| {
        let mut buffers: Vec<BufferSpec> =
            made.iter().map(|(live, size)| BufferSpec::new(size * times, 1, live.clone())).collect();
        buffers.extend(
            more.into_iter().map(|(start, steps, size)| BufferSpec::new(size, 1, start..start + steps)),
        );
        if let Some((which, size)) = change {
            buffers[which].size = size * times;
        }
        if mirrored {
            buffers.iter_mut().for_each(|buffer| buffer.live = 20 - buffer.live.end..20 - buffer.live.start);
        }
        Problem { buffers, ..Problem::default() }
    })
}

/// The optimal peak, by trying every order of stacking: each buffer as low as those before it allow.
fn smallest(problem: &Problem) -> u64 {
    fn stack(problem: &Problem, offsets: &mut Vec<Option<u64>>, last: u64, peak: u64, best: &mut u64) {
        if peak >= *best {
            return;
        }
        let open: Vec<usize> = (0..offsets.len()).filter(|i| offsets[*i].is_none()).collect();
        if open.is_empty() {
            *best = peak;
        }
        for i in open {
            let buffer = &problem.buffers[i];
            let below = problem.buffers.iter().zip(offsets.iter()).filter_map(|(other, offset)| {
                let meets = other.live.start < buffer.live.end && buffer.live.start < other.live.end;
                offset.filter(|_| meets).map(|offset| offset + other.footprint().expect("small sizes"))
            });
            let floor = below.max().unwrap_or(0);
            let at = match buffer.fixed {
                Some(place) if place.offset >= floor => place.offset,
                Some(_) => continue,
                None => floor.next_multiple_of(buffer.align),
            };
            // Lower ones come first.
            if at >= last {
                offsets[i] = Some(at);
                stack(problem, offsets, at, peak.max(at + buffer.footprint().expect("small sizes")), best);
                offsets[i] = None;
            }
        }
    }
    let mut best = u64::MAX;
    stack(problem, &mut vec![None; problem.buffers.len()], 0, 0, &mut best);
    best
}

fn only(problem: &Problem, ids: &[BufferId]) -> Problem {
    let buffers = ids.iter().map(|id| problem.buffers[id.index()].clone()).collect();
    Problem { buffers, ..problem.clone() }
}

fn exact(problem: &Problem) -> Result<Plan, PlanError> {
    solve(problem, &SolveOptions::with(Planner::Exact))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn exact_plans_are_optimal(problem in prop_oneof![tiny(), awkward()]) {
        let plan = exact(&problem).unwrap();
        prop_assert_eq!(verify(&problem, &plan), Ok(()));
        prop_assert_eq!((plan.peak, plan.optimal), (smallest(&problem), true));
    }

    #[test]
    fn a_capacity_is_met_exactly_if_that_is_possible(
        problem in prop_oneof![tiny(), awkward()],
        less in 0u64..4,
    ) {
        let least = smallest(&problem);
        let capacity = least.saturating_sub(less);
        let problem = Problem { capacity: Some(capacity), ..problem };
        match exact(&problem) {
            Ok(plan) => {
                prop_assert_eq!(verify(&problem, &plan), Ok(()));
                prop_assert!(plan.peak <= capacity && least <= capacity);
            }
            Err(PlanError::NoPlan { together, .. }) => {
                prop_assert!(least > capacity && bound(&problem) <= capacity);
                prop_assert!(smallest(&only(&problem, &together)) > capacity);
                for left_out in &together {
                    let others: Vec<BufferId> = together.iter().copied().filter(|id| id != left_out).collect();
                    prop_assert!(others.is_empty() || smallest(&only(&problem, &others)) <= capacity);
                }
            }
            Err(PlanError::Impossible { together, bound: least, .. }) => {
                prop_assert!(least == bound(&problem) && least > capacity);
                let few = only(&Problem { capacity: None, ..problem.clone() }, &together);
                prop_assert!(bound(&few) > capacity);
            }
            Err(other) => prop_assert_eq!(problem.validate(), Err(other)),
        }
        // Without a limit of effort, the portfolio ends with the same verdict.
        let unlimited = SolveOptions { effort: SolveOptions::UNLIMITED, ..SolveOptions::default() };
        match solve(&problem, &unlimited) {
            Ok(plan) => prop_assert!(plan.peak <= capacity),
            Err(PlanError::OverCapacity { .. }) => prop_assert!(false, "the search ended without a proof"),
            Err(_) => prop_assert!(least > capacity),
        }
    }

    #[test]
    fn the_plan_and_its_work_do_not_depend_on_the_number_of_threads(
        problem in prop_oneof![tiny(), awkward()],
        capacity in prop::option::of(4u64..40),
        effort in prop::sample::select(vec![1u64, 4, u64::MAX]),
    ) {
        let problem = Problem { capacity, ..problem };
        let with = |threads| solve(&problem, &SolveOptions { threads, effort, ..SolveOptions::with(Planner::Exact) });
        prop_assert_eq!(with(1), with(3));
    }
}

/// A square of time and bytes, cut into rectangles recursively: a problem whose optimum is its bound, without holes.
fn cut_square(side: u64, cuts: usize, random: &mut Random) -> Problem {
    let mut pieces = vec![(0..side, 0..side)];
    for _ in 0..cuts {
        let which = random.below(pieces.len() as u64) as usize;
        let (steps, bytes) = pieces[which].clone();
        let in_time = random.below(2) == 0;
        let range = if in_time { &steps } else { &bytes };
        if range.end - range.start < 2 {
            continue;
        }
        let at = range.start + 1 + random.below(range.end - range.start - 1);
        let (one, two) = match in_time {
            true => ((steps.start..at, bytes.clone()), (at..steps.end, bytes.clone())),
            false => ((steps.clone(), bytes.start..at), (steps.clone(), at..bytes.end)),
        };
        pieces[which] = one;
        pieces.push(two);
    }
    // Shuffled.
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, random.below(i as u64 + 1) as usize);
    }
    let buffers = pieces.into_iter().map(|(steps, bytes)| BufferSpec::new(bytes.end - bytes.start, 1, steps));
    Problem { buffers: buffers.collect(), ..Problem::default() }
}

#[test]
fn infeasible_and_not_found_are_different_errors() {
    let made = [(6..9, 3), (0..2, 3), (3..6, 2), (2..5, 2), (1..3, 3), (5..9, 3), (2..6, 1), (0..9, 1)];
    let buffers = made.map(|(live, size)| BufferSpec::new(size, 1, live)).to_vec();
    let problem = Problem { buffers, capacity: Some(7), ..Problem::default() };
    assert_eq!(bound(&problem), 7);
    let together: Vec<BufferId> = (0..8).filter_map(|index| problem.id(index)).collect();
    assert_eq!(exact(&problem), Err(PlanError::NoPlan { capacity: 7, together }));
    let online = solve(&problem, &SolveOptions::with(Planner::Online)).unwrap_err();
    assert!(matches!(online, PlanError::OverCapacity { .. }));
}

#[test]
fn cut_squares_are_solved_to_optimality() {
    for seed in 0..12 {
        let problem = cut_square(1 << 10, 120, &mut Random::new(seed));
        let problem = Problem { capacity: Some(1 << 10), ..problem };
        let plan = exact(&problem).unwrap();
        assert_eq!(
            (verify(&problem, &plan), plan.peak, plan.optimal),
            (Ok(()), 1 << 10, true),
            "seed {seed}"
        );
    }
}

#[test]
fn threads_share_a_search_of_many_rounds() {
    for (seed, effort) in [(3, u64::MAX), (4, 2000), (9, 20_000)] {
        let problem = cut_square(1 << 10, 120, &mut Random::new(seed));
        let with = |threads| {
            solve(&problem, &SolveOptions { threads, effort, ..SolveOptions::with(Planner::Exact) })
        };
        assert_eq!(with(1), with(2));
    }
}

#[test]
fn stopping_returns_the_best_plan_so_far() {
    let problem = cut_square(1 << 20, 400, &mut Random::new(5));
    let stopped = orlop_plan::solve_until(&problem, &SolveOptions::with(Planner::Exact), &|| true).unwrap();
    assert_eq!((verify(&problem, &stopped), stopped.optimal), (Ok(()), false));
}
