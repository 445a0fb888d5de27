//! How fast memory is read.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Far more than any cache holds.
const BYTES: usize = 1 << 30;

/// Bytes a second that some threads read together, each from memory of its own.
pub struct Read {
    /// In the best pass over all of it.
    pub pass: f64,
    /// In the best passes that follow each other and take as long as a piece of work that is to be compared.
    pub stretch: f64,
}

/// Reads as long as `times` pieces of work that take `each`.
pub fn best(threads: usize, each: Duration, times: usize) -> Read {
    let threads = threads.max(1);
    let (barrier, stop) = (Barrier::new(threads), AtomicBool::new(false));
    let words = BYTES / 8 / threads;
    let work = || {
        let memory: Vec<u64> = (0..words as u64).collect();
        let mut passes = Vec::new();
        barrier.wait();
        let first = Instant::now();
        loop {
            // Whoever is first says whether there is another pass, and all see the same.
            if barrier.wait().is_leader() {
                stop.store(first.elapsed() >= each * times as u32 && !passes.is_empty(), Ordering::SeqCst);
            }
            barrier.wait();
            if stop.load(Ordering::SeqCst) {
                return passes;
            }
            let begin = Instant::now();
            black_box(sum(&memory));
            passes.push((begin, Instant::now()));
        }
    };
    let threads: Vec<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("reading does not panic")).collect()
    });
    // From the first who begins to the last who ends.
    let passes = (0..threads[0].len()).map(|pass| {
        let all = threads.iter().map(|passes| passes[pass]);
        all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).expect("at least one thread")
    });
    rates((words * 8 * threads.len()) as f64, &passes.collect::<Vec<_>>(), each)
}

fn rates(bytes: f64, passes: &[(Instant, Instant)], each: Duration) -> Read {
    let rate = |passes: &[(Instant, Instant)]| match passes {
        [] => 0.0,
        [first, ..] => bytes * passes.len() as f64 / (passes[passes.len() - 1].1 - first.0).as_secs_f64(),
    };
    let stretch = |first: usize| {
        let last = passes[first..].iter().position(|(_, end)| *end - passes[first].0 >= each);
        last.map(|last| rate(&passes[first..=first + last]))
    };
    let all = rate(passes);
    Read {
        pass: passes.chunks(1).map(rate).fold(all, f64::max),
        stretch: (0..passes.len()).filter_map(stretch).fold(all, f64::max),
    }
}

/// As plain as can be: compilers know what to make of it.
fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}
