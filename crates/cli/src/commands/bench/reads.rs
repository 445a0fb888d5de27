//! Memory read bandwidth, measured between tokens: it bounds generation, which reads all weights for every token. The two
//! alternate because the speed of a shared machine varies over time.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use serde::Serialize;

/// Bytes of a pass: more than the caches hold.
const BYTES: usize = 128 << 20;
/// After this long, the threads of the device have stopped spinning.
const REST: Duration = Duration::from_micros(300);

/// Memory, and the times of passes over it.
pub(crate) struct Reads {
    threads: usize,
    plain: (MmapMut, Vec<Duration>),
    large: (MmapMut, Vec<Duration>),
}

/// Bytes per second.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// From memory in default pages.
    pub(crate) plain: Rates,
    /// From memory in huge pages, where the system has them.
    pub(crate) large_pages: Rates,
}

/// Mean and best of all passes.
#[derive(Debug, Serialize)]
pub(crate) struct Rates {
    pub(crate) mean: f64,
    pub(crate) best: f64,
}

impl Reads {
    pub(crate) fn new(threads: usize) -> std::io::Result<Reads> {
        let threads = threads.max(1);
        Ok(Reads { threads, plain: (memory(false)?, Vec::new()), large: (memory(true)?, Vec::new()) })
    }

    /// Reads one of the two memories, alternating.
    pub(crate) fn pass(&mut self) {
        let even = self.plain.1.len() <= self.large.1.len();
        let (memory, times) = if even { &mut self.plain } else { &mut self.large };
        times.push(read(memory, self.threads));
    }

    /// The rates of all passes, which it resets.
    pub(crate) fn report(&mut self) -> Report {
        let rates = |times: Vec<Duration>| {
            let (all, best) = (times.iter().sum::<Duration>(), times.iter().min().copied());
            let rate = |bytes: f64, time: Duration| bytes / time.as_secs_f64();
            Rates {
                mean: rate((BYTES * times.len()) as f64, all),
                best: best.map_or(f64::NAN, |best| rate(BYTES as f64, best)),
            }
        };
        let [plain, large] = [&mut self.plain.1, &mut self.large.1].map(std::mem::take);
        Report { plain: rates(plain), large_pages: rates(large) }
    }
}

/// Memory with every page written, so that each is backed by its own physical page.
fn memory(large_pages: bool) -> std::io::Result<MmapMut> {
    let mut memory = MmapMut::map_anon(BYTES)?;
    // Fails without huge page support; all pages are equal then.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(if large_pages { memmap2::Advice::HugePage } else { memmap2::Advice::NoHugePage });
    let _ = large_pages;
    memory.fill(1);
    Ok(memory)
}

/// The time from the first start to the last end of the threads.
fn read(memory: &[u8], threads: usize) -> Duration {
    let words = memory.as_chunks::<8>().0;
    let mut parts = words.chunks(words.len().div_ceil(threads));
    let begin = AtomicBool::new(false);
    let work = |part: &[[u8; 8]]| {
        while !begin.load(Ordering::Acquire) {
            spin_loop();
        }
        let begin = Instant::now();
        // A plain sum, which compilers vectorize.
        black_box(part.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word))));
        (begin, Instant::now())
    };
    let own = parts.next().unwrap_or_default();
    thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        thread::sleep(REST);
        begin.store(true, Ordering::Release);
        let own = work(own);
        let times = others.into_iter().filter_map(|other| other.join().ok());
        let (begin, end) = times.fold(own, |a, b| (a.0.min(b.0), a.1.max(b.1)));
        end - begin
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_memory_take_turns() {
        let mut reads = Reads::new(2).unwrap();
        (0..3).for_each(|_| reads.pass());
        assert_eq!((reads.plain.1.len(), reads.large.1.len()), (2, 1));
        let Report { plain, large_pages } = reads.report();
        assert!(plain.mean > 0.0 && plain.mean <= plain.best);
        assert_eq!(large_pages.mean, large_pages.best);
        assert!(reads.plain.1.is_empty() && reads.large.1.is_empty());
    }
}
