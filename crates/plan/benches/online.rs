//! Times of the free list and of planning as problems grow. Run with
//! `cargo bench -p orlop-plan --bench online`.
#![allow(missing_docs)]

use std::time::Instant;

use orlop_plan::{BufferSpec, ChunkRule, FreeList, Problem, SolveOptions, Strategy, bound, solve, verify};
use orlop_testkit::Random;

/// `count` buffers, two starting at each step, each live for up to `span` steps.
fn synthetic(count: u64, span: u64) -> Problem {
    let mut random = Random::new(0);
    let buffers = (0..count).map(|i| {
        let size = 1 << (5 + random.below(12));
        BufferSpec::new(size + random.below(size), 32, i / 2..i / 2 + 1 + random.below(span))
    });
    Problem { buffers: buffers.collect(), ..Problem::default() }
}

/// The time of `work` in milliseconds, and its result.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_secs_f64() * 1e3, result)
}

/// Fills a list with `count` ranges, frees every other one, and fills the holes.
fn churn(count: u64, mut list: FreeList) -> u64 {
    let sizes: Vec<u64> = (0..count).map(|i| 32 + i * 2_654_435_761 % 4096).collect();
    let places: Vec<_> = sizes.iter().map(|size| list.allocate(*size).expect("room")).collect();
    for (place, size) in places.iter().zip(&sizes).step_by(2) {
        list.release(*place, *size).expect("allocated");
    }
    for size in sizes.iter().step_by(2).rev() {
        list.allocate(*size).expect("room");
    }
    list.high_water()
}

fn main() {
    println!("{:>9} {:>14} {:>14} {:>14}", "buffers", "one chunk", "1 MiB chunks", "ns a call");
    for count in [10_000, 100_000, 1_000_000] {
        let (one, _) = timed(|| churn(count, FreeList::unbounded(32).expect("a power of two")));
        let chunked = FreeList::chunked(32, 1 << 20, ChunkRule::Tightest).expect("a power of two");
        let (many, _) = timed(|| churn(count, chunked));
        println!("{count:>9} {one:>11.1} ms {many:>11.1} ms {:>14.0}", one * 1e6 / (count * 2) as f64);
    }

    println!();
    println!(
        "{:>9} {:>9} {:>9} {:>12} {:>12} {:>10}",
        "buffers", "span", "strategy", "solve", "verify", "gap"
    );
    let cases =
        [(10_000, 64), (100_000, 64), (1_000_000, 64), (10_000, 4096), (100_000, 4096), (1_000_000, 4096)];
    for (count, span) in cases {
        let problem = synthetic(count, span);
        let strategies: &[Strategy] = match count {
            1_000_000 => &[Strategy::Online],
            _ => &[Strategy::Online, Strategy::Size, Strategy::Skyline],
        };
        for &strategy in strategies {
            let (solving, plan) =
                timed(|| solve(&problem, &SolveOptions::with(strategy)).expect("no limits"));
            let (checking, verdict) = timed(|| verify(&problem, &plan));
            verdict.expect("a legal plan");
            let gap = 100.0 * plan.gap() as f64 / bound(&problem) as f64;
            let found = plan.strategy.name();
            println!("{count:>9} {span:>9} {found:>9} {solving:>9.1} ms {checking:>9.1} ms {gap:>9.2}%");
        }
    }
}
