//! How fast memory is read.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Far more than any cache holds.
const BYTES: usize = 1 << 30;
const PASSES: usize = 12;

/// Bytes a second that so many threads read together, each from memory of its own: the best of some passes over all of
/// it.
pub fn best(threads: usize) -> f64 {
    let threads = threads.max(1);
    let barrier = Barrier::new(threads);
    let words = BYTES / 8 / threads;
    let work = || {
        let memory: Vec<u64> = (0..words as u64).collect();
        let pass = |_| {
            barrier.wait();
            let begin = Instant::now();
            black_box(sum(&memory));
            (begin, Instant::now())
        };
        (0..PASSES).map(pass).collect()
    };
    let times: Vec<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("reading does not panic")).collect()
    });
    // From the first who begins to the last who ends.
    let seconds = (0..PASSES).map(|pass| {
        let begin = times.iter().map(|times| times[pass].0).min();
        let end = times.iter().map(|times| times[pass].1).max();
        begin.zip(end).map_or(f64::INFINITY, |(begin, end)| (end - begin).as_secs_f64())
    });
    (words * 8 * threads) as f64 / seconds.fold(f64::INFINITY, f64::min)
}

/// As plain as can be: compilers know what to make of it.
fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}
