//! A pool of threads that run one job at a time together, and the barrier at which they meet.
//!
//! A run of a model is thousands of short jobs and barriers, so threads spin for a while before they sleep.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// Spins before a thread sleeps where the others are about to arrive: tens of microseconds.
const SHORT_SPINS: u32 = 500;
/// Spins before a worker sleeps between jobs: about a hundred microseconds.
const LONG_SPINS: u32 = 1_600;
/// Spins after which a thread yields now and then, as there may be more threads than cores.
const SPINS_BEFORE_YIELD: u32 = 32;

/// A fixed number of threads that run one job at a time together with the caller. Idle threads sleep.
///
/// Several callers may share a pool; their jobs run one after the other.
pub struct ThreadPool {
    shared: Arc<PoolState>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

struct PoolState {
    work: Mutex<CurrentJob>,
    /// Counts jobs.
    epoch: AtomicU32,
    /// Workers that are still busy with the current job.
    busy: AtomicUsize,
    stop: AtomicBool,
    /// Workers wait here for the next job, the caller for the end of one.
    next: WaitPoint,
    done: WaitPoint,
}

struct CurrentJob {
    epoch: u32,
    threads: usize,
    job: Option<Job>,
    /// What the job panicked with on a worker.
    panic: Option<Box<dyn Any + Send>>,
}

/// A borrowed closure whose lifetime was taken away; see [`ThreadPool::run`].
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize) + Sync));

// SAFETY: `Send` asks that another thread may use the pointer: the closure behind it is `Sync`, and `run_in_turn` keeps it
// alive until no worker uses it.
unsafe impl Send for Job {}

impl ThreadPool {
    /// A pool of `threads` threads, the caller's included; at least 1.
    ///
    /// # Errors
    /// What the system says when it refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Arc<ThreadPool>> {
        let shared = Arc::new(PoolState {
            work: Mutex::new(CurrentJob { epoch: 0, threads: 0, job: None, panic: None }),
            epoch: AtomicU32::new(0),
            busy: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            next: WaitPoint::new(),
            done: WaitPoint::new(),
        });
        let mut pool = ThreadPool { shared, workers: Vec::new(), turn: Mutex::new(()) };
        for index in 1..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let name = format!("orlop-cpu-{index}");
            pool.workers.push(std::thread::Builder::new().name(name).spawn(move || shared.serve(index))?);
        }
        Ok(Arc::new(pool))
    }

    /// As many threads as the machine has cores for this process, hyper-threads included.
    ///
    /// # Errors
    /// As [`ThreadPool::new`].
    pub fn for_machine() -> std::io::Result<Arc<ThreadPool>> {
        ThreadPool::new(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// How many threads there are, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job` once on each of `threads` threads, with their numbers from 0, and returns when all are back.
    /// At most [`ThreadPool::threads`] take part. A job must not call this again for the same pool.
    ///
    /// # Panics
    /// If the job does, on any thread, once all threads are back. So it must not panic on one thread while others
    /// wait for that one.
    pub fn run(&self, threads: usize, job: &(dyn Fn(usize) + Sync)) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.run_in_turn(threads, job);
    }

    /// As [`ThreadPool::run`], unless the pool is at work: then nothing happens, and the result is `false`. So jobs can call
    /// it too.
    pub(crate) fn try_run(&self, threads: usize, job: &(dyn Fn(usize) + Sync)) -> bool {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.run_in_turn(threads, job);
        true
    }

    fn run_in_turn(&self, threads: usize, job: &(dyn Fn(usize) + Sync)) {
        let threads = threads.clamp(1, self.threads());
        if threads > 1 {
            // SAFETY: `transmute` asks that the result is valid: only the lifetime changes, and the pointer is not used after the
            // closure's end: workers use it before they count themselves out of `busy`, and this call does not return, nor
            // unwind, before `busy` is 0.
            let job = unsafe {
                std::mem::transmute::<*const (dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync + 'static)>(
                    job,
                )
            };
            self.shared.busy.store(threads - 1, Ordering::SeqCst);
            let mut work = self.shared.lock();
            work.epoch = work.epoch.wrapping_add(1);
            work.threads = threads;
            work.job = Some(Job(job));
            let epoch = work.epoch;
            drop(work);
            self.shared.epoch.store(epoch, Ordering::SeqCst);
            self.shared.next.notify();
        }
        let mut panicked = catch_unwind(AssertUnwindSafe(|| job(0))).err();
        if threads > 1 {
            self.shared.done.until(SHORT_SPINS, || self.shared.busy.load(Ordering::SeqCst) == 0);
            let mut work = self.shared.lock();
            work.job = None;
            panicked = panicked.or(work.panic.take());
        }
        if let Some(panic) = panicked {
            std::panic::resume_unwind(panic);
        }
    }
}

impl PoolState {
    fn lock(&self) -> MutexGuard<'_, CurrentJob> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, index: usize) {
        let mut seen = 0;
        while let Some((epoch, threads, job)) = self.next(seen) {
            seen = epoch;
            if index < threads {
                // SAFETY: dereferencing asks for a live closure: `run_in_turn` keeps it until this thread has counted itself out
                // below.
                let job = unsafe { &*job.0 };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(index))) {
                    self.lock().panic.get_or_insert(panic);
                }
                if self.busy.fetch_sub(1, Ordering::SeqCst) == 1 {
                    self.done.notify();
                }
            }
        }
    }

    /// The next job, or `None` when the pool is dropped.
    fn next(&self, mut seen: u32) -> Option<(u32, usize, Job)> {
        loop {
            let stopped = || self.stop.load(Ordering::SeqCst);
            self.next.until(LONG_SPINS, || self.epoch.load(Ordering::SeqCst) != seen || stopped());
            if stopped() {
                return None;
            }
            let work = self.lock();
            match work.job {
                Some(job) if work.epoch != seen => return Some((work.epoch, work.threads, job)),
                // Too late for a job that ran without this thread.
                _ => seen = work.epoch,
            }
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.next.notify();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPool of {} threads", self.threads())
    }
}

/// Where threads wait for a condition that others make true with one atomic store.
#[derive(Debug)]
struct WaitPoint {
    asleep: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

impl WaitPoint {
    fn new() -> WaitPoint {
        WaitPoint { asleep: AtomicU32::new(0), lock: Mutex::new(()), wake: Condvar::new() }
    }

    /// Returns once `ready`, which reads with `SeqCst`: spins up to `looks` times, then sleeps.
    fn until(&self, looks: u32, ready: impl Fn() -> bool) {
        for look in 0..looks {
            if ready() {
                return;
            }
            if look < SPINS_BEFORE_YIELD || !look.is_multiple_of(8) {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        while !ready() {
            lock = self.wake.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes sleeping threads, after a store with `SeqCst` that makes them ready. Of that store and a sleeper's entry one comes
    /// first: either the sleeper is seen here, or it looks once more and sees the store.
    fn notify(&self) {
        if self.asleep.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }
}

/// Lets the threads of one job meet: none goes on before all have arrived. Spins for a moment, then sleeps.
#[derive(Debug)]
pub(crate) struct Barrier {
    threads: u32,
    arrived: AtomicU32,
    generation: AtomicU32,
    waiting: WaitPoint,
}

impl Barrier {
    pub(crate) fn new(threads: usize) -> Barrier {
        Barrier {
            threads: threads as u32,
            arrived: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            waiting: WaitPoint::new(),
        }
    }

    pub(crate) fn wait(&self) {
        if self.threads == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Release);
            self.generation.store(generation.wrapping_add(1), Ordering::SeqCst);
            self.waiting.notify();
        } else {
            self.waiting.until(SHORT_SPINS, || self.generation.load(Ordering::SeqCst) != generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_called_once_per_run() {
        let pool = ThreadPool::new(5).unwrap();
        for threads in [1, 2, 5, 9] {
            let calls: Vec<AtomicUsize> = (0..5).map(|_| AtomicUsize::new(0)).collect();
            pool.run(threads, &|index| {
                calls[index].fetch_add(1, Ordering::Relaxed);
            });
            let calls: Vec<usize> = calls.iter().map(|calls| calls.load(Ordering::Relaxed)).collect();
            let expected: Vec<usize> = (0..5).map(|index| usize::from(index < threads)).collect();
            assert_eq!(calls, expected);
        }
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = ThreadPool::new(3).unwrap();
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        pool.run(3, &|_| {
                            total.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * 200 * 3);
    }

    #[test]
    fn nobody_passes_a_barrier_before_all_have_come() {
        let pool = ThreadPool::new(4).unwrap();
        let barrier = Barrier::new(4);
        let count = AtomicUsize::new(0);
        pool.run(4, &|_| {
            for round in 1..=300 {
                count.fetch_add(1, Ordering::Relaxed);
                barrier.wait();
                assert_eq!(count.load(Ordering::Relaxed), 4 * round);
                barrier.wait();
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 1_200);
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_leaves_the_pool_usable() {
        let pool = ThreadPool::new(3).unwrap();
        for thread in 0..3 {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                pool.run(3, &|index| assert!(index != thread, "on purpose"));
            }));
            assert!(panicked.is_err(), "thread {thread}");
            let calls = AtomicUsize::new(0);
            pool.run(3, &|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(calls.load(Ordering::Relaxed), 3);
        }
    }

    #[test]
    fn workers_that_are_left_out_many_times_can_still_be_called() {
        let pool = ThreadPool::new(4).unwrap();
        let calls = AtomicUsize::new(0);
        for _ in 0..20_000 {
            pool.run(2, &|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.run(4, &|_| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(calls.load(Ordering::Relaxed), 40_004);
    }

    #[test]
    fn a_pool_ends_whether_its_threads_have_worked_or_not() {
        for runs in [0, 1, 50] {
            let (pool, calls) = (ThreadPool::new(3).unwrap(), AtomicUsize::new(0));
            for _ in 0..runs {
                pool.run(3, &|_| {
                    calls.fetch_add(1, Ordering::Relaxed);
                });
            }
            let shared = Arc::downgrade(&pool.shared);
            drop(pool);
            assert!(shared.upgrade().is_none(), "a worker is still there");
            assert_eq!(calls.load(Ordering::Relaxed), 3 * runs);
        }
    }
}
