use super::*;
use crate::{BufferSpec, verify};

fn problem(made: &[(u64, std::ops::Range<u64>)]) -> Problem {
    let buffers = made.iter().map(|(size, live)| BufferSpec::new(*size, 1, live.clone())).collect();
    Problem { buffers, ..Problem::default() }
}

/// A problem on which the free list in step order leaves a hole: 16 ends when 24 starts.
fn fragmented() -> Problem {
    problem(&[(16, 0..1), (8, 0..3), (24, 1..3)])
}

#[test]
fn nothing_to_place_is_an_empty_plan() {
    let plan = solve(&Problem::default(), &SolveOptions::default()).unwrap();
    assert_eq!((plan.places.len(), plan.chunks.len(), plan.peak, plan.optimal), (0, 0, 0, true));
}

#[test]
fn empty_buffers_are_at_the_start_of_the_first_chunk() {
    let plan = solve(&problem(&[(0, 0..9), (8, 0..9), (0, 0..1)]), &SolveOptions::default()).unwrap();
    assert_eq!((plan.places, plan.chunks), (vec![ChunkOffset::default(); 3], vec![8]));
}

#[test]
fn offline_beats_online_on_fragmentation() {
    let online = solve(&fragmented(), &SolveOptions::with(Strategy::Online)).unwrap();
    let best = solve(&fragmented(), &SolveOptions::default()).unwrap();
    assert_eq!((online.peak, online.gap(), online.optimal), (48, 16, false));
    assert_eq!((best.peak, best.gap(), best.optimal, best.strategy), (32, 0, true, Strategy::Valley));
}

#[test]
fn a_strategy_that_runs_out_of_effort_falls_back_to_the_free_list() {
    let options = SolveOptions { effort: 0, ..SolveOptions::with(Strategy::Size) };
    let plan = solve(&fragmented(), &options).unwrap();
    assert_eq!((plan.strategy, plan.peak), (Strategy::Online, 48));
}

#[test]
fn a_capacity_that_is_met_ends_the_search() {
    let problem = Problem { capacity: Some(48), ..fragmented() };
    let plan = solve(&problem, &SolveOptions::default()).unwrap();
    assert_eq!((plan.strategy, plan.peak, plan.optimal), (Strategy::Online, 48, false));
}

#[test]
fn a_capacity_below_the_bound_is_impossible() {
    let problem = Problem { capacity: Some(31), ..fragmented() };
    let err = solve(&problem, &SolveOptions::default()).unwrap_err();
    let together = vec![problem.id(1).unwrap(), problem.id(2).unwrap()];
    assert_eq!(err, PlanError::Impossible { capacity: 31, bound: 32, together });
}

#[test]
fn a_capacity_that_is_missed_comes_with_the_best_plan() {
    let problem = Problem { capacity: Some(40), ..fragmented() };
    let err = solve(&problem, &SolveOptions::with(Strategy::Ggml)).unwrap_err();
    assert_eq!(err.to_string(), "the best plan found takes 48 bytes, more than the capacity of 40");
    let PlanError::OverCapacity { best, .. } = err else { panic!("{err}") };
    assert_eq!(verify(&fragmented(), &best), Ok(()));
}

#[test]
fn invalid_problems_are_refused_before_anything_else() {
    let problem = Problem { buffers: vec![BufferSpec::new(1, 3, 0..1)], ..Problem::default() };
    assert!(matches!(solve(&problem, &SolveOptions::default()), Err(PlanError::BadAlign { .. })));
}

#[test]
fn offsets_beyond_64_bits_are_an_error_of_the_strategy_not_a_wrap() {
    let mut problem = Problem::default();
    problem.push(BufferSpec::new(1, 1, 0..1)).unwrap();
    problem.push(BufferSpec::new(1 << 63, 1 << 63, 0..1)).unwrap();
    let order = solve(&problem, &SolveOptions::with(Strategy::Order)).unwrap_err();
    assert_eq!(order, PlanError::AddressesOverflow { strategy: Strategy::Order });
    assert_eq!(solve(&problem, &SolveOptions::default()).unwrap().peak, (1 << 63) + 1);
}

#[test]
fn oversize_chunks_are_marked() {
    let problem = Problem { max_chunk: Some(100), ..problem(&[(60, 0..2), (300, 0..2), (60, 0..2)]) };
    for strategy in Strategy::ALL {
        let plan = solve(&problem, &SolveOptions::with(strategy)).unwrap();
        assert_eq!((plan.peak, plan.oversize.len()), (420, 1), "{strategy}");
        assert_eq!(plan.chunks[plan.oversize[0] as usize], 300);
    }
}

#[test]
fn ggmls_last_chunk_above_the_limit_is_an_error_and_skipped_by_the_portfolio() {
    let problem = Problem { max_chunk: Some(10), ..problem(&vec![(10, 0..1); 17]) };
    let err = solve(&problem, &SolveOptions::with(Strategy::Ggml)).unwrap_err();
    assert_eq!(err, PlanError::ChunkLimit { chunk: 15, height: 20, max_chunk: 10 });
    assert_eq!(solve(&problem, &SolveOptions::default()).unwrap().chunks, vec![10; 17]);
}

#[test]
fn many_buffers_with_few_conflicts_are_planned_within_the_default_effort() {
    let made: Vec<_> = (0..20_000u64).map(|i| (1 + i * 7919 % 1000, i..i + 2 + i % 5)).collect();
    let problem = problem(&made);
    let plan = solve(&problem, &SolveOptions::with(Strategy::Size)).unwrap();
    assert_eq!((verify(&problem, &plan), plan.strategy), (Ok(()), Strategy::Size));
}

#[test]
fn improvement_continues_where_the_exact_search_ends_without_a_proof() {
    let mut state = 5u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % limit
    };
    let options = SolveOptions { effort: 1024, ..SolveOptions::default() };
    let mut open = 0;
    for _ in 0..80 {
        let mut problem = Problem { max_chunk: Some(40 + below(40)), ..Problem::default() };
        for _ in 0..8 + below(16) {
            let start = below(12);
            let (size, align) = (1 + below(30), 1 << below(4));
            problem.push(BufferSpec::new(size, align, start..start + 1 + below(8))).unwrap();
        }
        let plan = solve(&problem, &options).unwrap();
        // A problem of few buffers gets the work of 1024.
        assert!(plan.optimal || plan.work >= 1024 * options.effort, "{} {}", plan.work, plan.peak);
        open += u32::from(!plan.optimal);
    }
    assert!(open > 0);
}

#[test]
fn effort_that_ends_between_two_partitions_ends_the_exact_search() {
    let fixed =
        |size, live, offset| BufferSpec::new(size, 4, live).fixed_at(ChunkOffset { chunk: 0, offset });
    let free = |(size, align, live): (u64, u64, std::ops::Range<u64>)| BufferSpec::new(size, align, live);
    let made = [(87, 8, 26..29), (52, 8, 27..36), (69, 4, 19..27), (0, 16, 17..24), (76, 4, 20..30)];
    let more = [(61, 32, 3..9), (4, 64, 23..27), (38, 16, 0..8), (95, 2, 25..30), (97, 1, 27..34)];
    let mut buffers: Vec<BufferSpec> = made.into_iter().chain(more).map(free).collect();
    buffers.extend([fixed(112, 0..9, 12), fixed(107, 20..28, 96), fixed(220, 0..11, 192)]);
    let problem = Problem { buffers, ..Problem::default() };
    for effort in 1..64 {
        let plan = solve(&problem, &SolveOptions { effort, ..SolveOptions::default() }).unwrap();
        assert_eq!(verify(&problem, &plan), Ok(()));
    }
}
