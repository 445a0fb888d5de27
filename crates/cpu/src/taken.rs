//! Work that threads take as they come to it. Each begins with a part of its own, which it goes through upwards, as
//! memory likes it; who has done with that takes from the ends of the others' parts. So nobody waits for a thread that
//! the machine has slowed down, or that is on a slower core.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::task::Thread;

/// What is taken of several steps' work in a run. All of it lies together: it is written before every run.
#[derive(Debug)]
pub(crate) struct AllTaken {
    parts: Arc<[Part]>,
    threads: usize,
}

/// What is taken of a step's work in a run. One phase of a kernel may divide its work so.
#[derive(Clone, Debug)]
pub(crate) struct WorkShares {
    parts: Arc<[Part]>,
    first: usize,
    threads: usize,
}

/// What is taken of a thread's part: pieces from its front, and from its end in the upper half.
#[derive(Debug, Default)]
#[repr(align(64))] // Threads do not write to each other's lines.
struct Part(AtomicU64);

const END: u32 = 32;

impl Part {
    /// Takes up to `most` of `length` pieces: which, counted from the front or from the end.
    fn take(&self, length: u64, most: u64, end: bool) -> Option<Range<u64>> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let (front, back) = (seen & u64::from(u32::MAX), seen >> END);
            let count = length.checked_sub(front + back)?.min(most);
            if count == 0 {
                return None;
            }
            let after = if end { seen + (count << END) } else { seen + count };
            // Which pieces are whose is all that threads tell each other here; barriers do the rest.
            match self.0.compare_exchange_weak(seen, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if end => return Some(length - back - count..length - back),
                Ok(_) => return Some(front..front + count),
                Err(now) => seen = now,
            }
        }
    }
}

impl AllTaken {
    /// For the work of so many steps, which up to so many threads share.
    pub(crate) fn new(steps: usize, threads: usize) -> AllTaken {
        AllTaken { parts: (0..steps * threads).map(|_| Part::default()).collect(), threads }
    }

    /// That of one step.
    pub(crate) fn of(&self, step: usize) -> WorkShares {
        WorkShares { parts: Arc::clone(&self.parts), first: step * self.threads, threads: self.threads }
    }

    /// A thread's parts are whole again. Each does that for its own, before any of them begins.
    pub(crate) fn begin(&self, index: usize) {
        for parts in self.parts.chunks_exact(self.threads.max(1)) {
            parts[index].0.store(0, Ordering::Relaxed);
        }
    }
}

impl WorkShares {
    /// Of work that threads do not share.
    pub(crate) fn none() -> WorkShares {
        AllTaken::new(0, 0).of(0)
    }

    /// The pieces that fall to a thread, of `items`, up to `most` of them at a time.
    pub(crate) fn pieces(&self, thread: Thread, items: u64, most: u64) -> impl Iterator<Item = Range<u64>> {
        let shared = thread.count > 1 && self.threads >= thread.count && items <= u64::from(u32::MAX);
        let mut own = (!shared).then(|| thread.part(items)).filter(|own| !own.is_empty());
        let mut others = 0..if shared { thread.count } else { 0 };
        std::iter::from_fn(move || {
            if let Some(own) = own.take() {
                return Some(own);
            }
            while others.start < others.end {
                let index = (thread.index + others.start) % thread.count;
                let part = Thread { index, ..thread }.part(items);
                if let Some(taken) =
                    self.parts[self.first + index].take(part.end - part.start, most, others.start > 0)
                {
                    return Some(part.start + taken.start..part.start + taken.end);
                }
                others.start += 1;
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn thread(index: usize, count: usize) -> Thread {
        Thread { index, count, phase: 0 }
    }

    #[test]
    fn every_piece_is_taken_once_however_threads_come() {
        for (threads, items, most) in [(1, 7, 2), (2, 36, 4), (3, 100, 1), (5, 3, 2), (4, 0, 1), (2, 5, 100)]
        {
            let all = AllTaken::new(2, threads);
            let taken = all.of(1);
            for _ in 0..3 {
                (0..threads).for_each(|index| all.begin(index));
                let times: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                std::thread::scope(|scope| {
                    for index in 0..threads {
                        let (taken, times) = (&taken, &times);
                        scope.spawn(move || {
                            for range in taken.pieces(thread(index, threads), items, most) {
                                for piece in range {
                                    times[piece as usize].fetch_add(1, Ordering::Relaxed);
                                    std::thread::yield_now();
                                }
                            }
                        });
                    }
                });
                let times: Vec<usize> = times.iter().map(|times| times.load(Ordering::Relaxed)).collect();
                assert_eq!(times, vec![1; items as usize], "{threads} {items} {most}");
            }
        }
    }

    #[test]
    fn a_thread_alone_does_the_work_of_those_that_do_not_come() {
        let taken = AllTaken::new(1, 3).of(0);
        let mut pieces: Vec<u64> = taken.pieces(thread(1, 3), 31, 4).flatten().collect();
        assert_eq!(pieces[..10], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
        pieces.sort_unstable();
        assert_eq!(pieces, (0..31).collect::<Vec<u64>>());
    }

    #[test]
    fn without_room_for_all_threads_each_has_its_part() {
        let taken = WorkShares::none();
        let pieces: Vec<Range<u64>> = taken.pieces(thread(1, 2), 9, 1).collect();
        assert_eq!((pieces.len(), pieces[0].clone()), (1, 5..9));
    }
}
