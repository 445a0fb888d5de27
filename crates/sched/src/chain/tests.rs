use std::sync::Arc;

use super::{ChainPart, ChainProblem, PartCost};

/// A number below a limit that follows from a seed.
fn random(seed: &mut u64, limit: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % limit
}

fn problem(seed: &mut u64) -> ChainProblem {
    let devices = 1 + random(seed, 3) as usize;
    let parts = 1 + random(seed, 6) as usize;
    let mut number = |limit| random(seed, limit);
    // Some chains have equal parts, as models do.
    let kinds = 1 + number(parts as u64) as usize;
    let kind: Vec<Vec<Option<PartCost>>> = (0..kinds)
        .map(|_| {
            let cost = |number: &mut dyn FnMut(u64) -> u64| PartCost {
                bytes: number(20),
                seconds: number(50) as f64,
            };
            (0..devices).map(|_| (number(9) > 0).then(|| cost(&mut number))).collect()
        })
        .collect();
    let hop = |from: usize, to: usize, number: &mut dyn FnMut(u64) -> u64| {
        if from == to { 0.0 } else { number(20) as f64 }
    };
    let capacity = (0..devices).map(|_| number(60)).collect();
    let tables: Vec<Arc<[Vec<f64>]>> = (0..2)
        .map(|_| {
            let from = |from| (0..devices).map(|to| hop(from, to, &mut number)).collect();
            (0..devices).map(from).collect()
        })
        .collect();
    let part = |_| ChainPart {
        costs: kind[number(kinds as u64) as usize].clone(),
        hops: Arc::clone(&tables[number(2) as usize]),
    };
    ChainProblem { capacity, parts: (0..parts).map(part).collect() }
}

/// The least seconds of all assignments that fit.
fn brute_force(problem: &ChainProblem) -> Option<f64> {
    let (devices, parts) = (problem.capacity.len(), problem.parts.len());
    let all = (0..devices.pow(parts as u32)).filter_map(|number| {
        let chosen: Vec<usize> = (0..parts).map(|part| number / devices.pow(part as u32) % devices).collect();
        let (seconds, bytes) = problem.cost(&chosen)?;
        bytes.iter().zip(&problem.capacity).all(|(used, all)| used <= all).then_some(seconds)
    });
    all.reduce(f64::min)
}

#[test]
fn small_chains_are_solved_exactly() {
    let mut seed = 1;
    let mut solved = 0;
    for round in 0..3000 {
        let problem = problem(&mut seed);
        let (expected, found) = (brute_force(&problem), problem.solve(1 << 24));
        match (expected, &found) {
            (Some(expected), Some(found)) => {
                let (seconds, bytes) = problem.cost(&found.devices).unwrap();
                assert!((seconds - expected).abs() < 1e-6, "{round}: {found:?}, {expected} is possible");
                assert!((found.seconds - seconds).abs() < 1e-9 && found.bound == found.seconds);
                assert!(bytes.iter().zip(&problem.capacity).all(|(used, all)| used <= all));
                solved += 1;
            }
            (None, None) => {}
            _ => panic!("{round}: {found:?} for {expected:?}"),
        }
    }
    assert!(solved > 1000, "{solved}");
}

#[test]
fn a_narrow_search_tells_how_much_better_others_could_be() {
    let mut seed = 2;
    let mut inexact = 0;
    for _ in 0..2000 {
        let problem = problem(&mut seed);
        let Some(found) = problem.solve(0) else { continue };
        let expected = brute_force(&problem).unwrap();
        assert!(found.bound <= expected + 1e-6 && expected <= found.seconds + 1e-6, "{found:?}: {expected}");
        inexact += usize::from(found.bound < found.seconds);
    }
    assert!(inexact > 20, "{inexact}");
}

#[test]
fn alternatives_are_the_best_other_places_of_one_part() {
    let cost = |seconds| Some(PartCost { bytes: 10, seconds });
    let part = ChainPart { costs: vec![cost(1.0), cost(5.0)], hops: [vec![0.0, 1.0], vec![1.0, 0.0]].into() };
    let problem = ChainProblem { capacity: vec![20, 100], parts: vec![part; 3] };
    let found = problem.solve(ChainProblem::EFFORT).unwrap();
    assert_eq!(found.seconds, 8.0);
    let slow = found.devices.iter().position(|device| *device == 1).unwrap();
    let others = problem.alternatives(&found.devices);
    for (part, other) in others.iter().enumerate() {
        match part == slow {
            // The fast device is full.
            true => assert_eq!(*other, None),
            false => assert!(other.unwrap().device == 1 && other.unwrap().extra_seconds >= 4.0 - 1.0),
        }
    }
}

/// Layers with experts that are used unequally, on devices of which each is four times slower than the one before and the
/// last one alone has room for all.
fn experts(layers: usize, each: usize) -> ChainProblem {
    let rates = [1.0, 4.0, 16.0, 64.0];
    let costs = |bytes: u64, uses: f64| -> Vec<Option<PartCost>> {
        rates.iter().map(|rate| Some(PartCost { bytes, seconds: rate * uses * bytes as f64 })).collect()
    };
    let free: Arc<[Vec<f64>]> = vec![vec![0.0; 4]; 4].into();
    let hop = |from: usize| (0..4).map(|to| if from == to { 0.0 } else { 50.0 }).collect();
    let between: Arc<[Vec<f64>]> = (0..4).map(hop).collect();
    let layer = |layer: usize| {
        let attention = ChainPart { costs: costs(300, 1.0), hops: Arc::clone(&between) };
        let expert = |index: usize| {
            let uses = 1.0 / (1 + (index * 37 + layer * 11) % each) as f64;
            ChainPart { costs: costs(100, uses), hops: Arc::clone(&free) }
        };
        std::iter::once(attention).chain((0..each).map(expert)).collect::<Vec<_>>()
    };
    let parts: Vec<ChainPart> = (0..layers).flat_map(layer).collect();
    let all = (layers * (300 + 100 * each)) as u64;
    ChainProblem { capacity: vec![all / 8, all / 6, all / 4, all], parts }
}

#[test]
fn a_hundred_layers_of_experts_are_solved_with_the_effort_that_is_given() {
    for (layers, each) in [(100, 128), (10, 16)] {
        let problem = experts(layers, each);
        let found = problem.solve(ChainProblem::EFFORT).unwrap();
        assert!(found.effort <= 2 * ChainProblem::EFFORT, "{}", found.effort);
        let (seconds, bytes) = problem.cost(&found.devices).unwrap();
        assert!(bytes.iter().zip(&problem.capacity).all(|(used, all)| used <= all));
        assert!((seconds - found.seconds).abs() < 1e-6 * seconds);
        assert!(found.seconds <= 1.03 * found.bound, "{} is possible, {} found", found.bound, found.seconds);
        let again = problem.solve(ChainProblem::EFFORT).unwrap();
        assert_eq!(again, found, "equal problems have equal solutions");
    }
}
