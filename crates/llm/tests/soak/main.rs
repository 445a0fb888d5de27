//! Random models on random machines: sequences are started, forked, rewound, fed, cancelled and ended while devices fail, and
//! each token is compared with that of an engine that is fed the same text alone. Memory stays what it was.
//!
//! `cargo xtask soak MINUTES` repeats this with new seeds; without it, a few rounds are run.

mod round;

use std::time::{Duration, Instant};

use round::{Counts, round};

/// Rounds of every run.
const ROUNDS: u64 = 8;

/// Memory of this process.
#[cfg(target_os = "linux")]
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> u64 {
    0
}

#[test]
fn random_models_survive_faults_and_cancels_with_the_right_tokens() {
    let minutes: Option<u64> =
        std::env::var("ORLOP_SOAK_MINUTES").ok().map(|minutes| minutes.parse().expect("a number"));
    let time = Duration::from_secs(60 * minutes.unwrap_or(0));
    let (begin, mut seed, mut all, mut early) = (Instant::now(), 0, Counts::default(), 0);
    while seed < ROUNDS || begin.elapsed() < time {
        all += round(seed);
        seed += 1;
        let now = resident_bytes();
        if seed <= ROUNDS {
            early = early.max(now);
        }
        // Allocators keep some of what was freed.
        assert!(now <= early + early / 2 + (32 << 20), "{now} bytes after {seed} rounds, {early} at first");
    }
    println!("{seed} rounds: {all:?}; {early} bytes at first, {} at last", resident_bytes());
    let Counts { fed, refused, cancelled, failed, lost } = all;
    assert!(fed > 20 * seed as usize && refused < fed, "{all:?}");
    assert!(cancelled > 0 && failed > 0 && lost > 0, "{all:?}");
}
