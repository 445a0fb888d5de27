//! Work stealing ([Blumofe and Leiserson, 1999](https://doi.org/10.1145/324133.324234)) for work whose pieces are numbered.
//! Each thread begins with a range of its own, which it goes through upwards, as sequential reads are fastest; an idle
//! thread takes pieces from the ends of the others' ranges. A thread on a slower core, or that the system has suspended,
//! then holds up the others for one piece at most.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::task::Thread;

/// The counters of all steps of a program that share work. They lie together, as every run resets them.
#[derive(Debug)]
pub(crate) struct ProgramShares {
    ranges: Arc<[RangeCounters]>,
    threads: usize,
}

/// The counters of one step. One phase of its kernel may divide its work by them.
#[derive(Clone, Debug)]
pub(crate) struct WorkShares {
    ranges: Arc<[RangeCounters]>,
    first: usize,
    threads: usize,
}

/// How many pieces of a thread's range are taken: from its front, and in the upper half from its end.
#[derive(Debug, Default)]
#[repr(align(64))] // One cache line each, against false sharing.
struct RangeCounters(AtomicU64);

const END: u32 = 32;

impl RangeCounters {
    /// Takes up to `most` of `length` pieces, and at most half of those that are left, so that threads end together: which,
    /// counted from the front or from the end.
    fn take(&self, length: u64, most: u64, end: bool) -> Option<Range<u64>> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let (front, back) = (seen & u64::from(u32::MAX), seen >> END);
            let left = length.checked_sub(front + back)?;
            let count = most.min(left.div_ceil(2));
            if count == 0 {
                return None;
            }
            let after = if end { seen + (count << END) } else { seen + count };
            // Relaxed: only the counter itself is communicated; phases order the results.
            match self.0.compare_exchange_weak(seen, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if end => return Some(length - back - count..length - back),
                Ok(_) => return Some(front..front + count),
                Err(now) => seen = now,
            }
        }
    }
}

impl ProgramShares {
    /// Counters for the work of `steps` steps, which up to `threads` threads share.
    pub(crate) fn new(steps: usize, threads: usize) -> ProgramShares {
        ProgramShares { ranges: (0..steps * threads).map(|_| RangeCounters::default()).collect(), threads }
    }

    /// The counters of one step.
    pub(crate) fn of(&self, step: usize) -> WorkShares {
        WorkShares { ranges: Arc::clone(&self.ranges), first: step * self.threads, threads: self.threads }
    }

    /// Resets a thread's counters, before any of them begins.
    pub(crate) fn begin(&self, index: usize) {
        for step in self.ranges.chunks_exact(self.threads.max(1)) {
            step[index].0.store(0, Ordering::Relaxed);
        }
    }
}

impl WorkShares {
    /// No counters: each thread works on its own range only.
    pub(crate) fn none() -> WorkShares {
        ProgramShares::new(0, 0).of(0)
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
                    self.ranges[self.first + index].take(part.end - part.start, most, others.start > 0)
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
            let all = ProgramShares::new(2, threads);
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
        let taken = ProgramShares::new(1, 3).of(0);
        let mut pieces: Vec<u64> = taken.pieces(thread(1, 3), 31, 4).flatten().collect();
        assert_eq!(pieces[..10], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
        pieces.sort_unstable();
        assert_eq!(pieces, (0..31).collect::<Vec<u64>>());
    }

    #[test]
    fn the_fewer_pieces_are_left_the_fewer_are_taken() {
        let taken = ProgramShares::new(1, 2).of(0);
        let mut own = taken.pieces(thread(0, 2), 40, 8);
        let lengths: Vec<u64> = own.by_ref().take(6).map(|piece| piece.end - piece.start).collect();
        assert_eq!(lengths, [8, 6, 3, 2, 1, 8], "and then those of the other thread");
        assert_eq!(own.next(), Some(26..32));
    }

    #[test]
    fn without_room_for_all_threads_each_has_its_part() {
        let taken = WorkShares::none();
        let pieces: Vec<Range<u64>> = taken.pieces(thread(1, 2), 9, 1).collect();
        assert_eq!((pieces.len(), pieces[0].clone()), (1, 5..9));
    }
}
