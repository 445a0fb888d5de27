//! A pool of threads that help a caller through phases of work.
//!
//! A phase is a number of items. The caller claims items until none is left, and so does every helper that the system gives a
//! core meanwhile. The phase ends when its items are done: a thread that never ran is not waited for, and one that was
//! suspended is waited for only if it holds an item. Where that happens too often, the caller works alone for a while
//! (`helpers`). A run of a model is hundreds of short phases, so threads spin for a moment before they sleep.

mod helpers;
mod phase;
mod sync;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Instant;

use self::helpers::HelperPolicy;
use self::phase::{Job, PhaseState};

/// Looks at the last items that helpers hold, before the caller sleeps: tens of microseconds.
const CALLER_LOOKS: u32 = 1_000;
/// Of the time that the caller's own items took, a fourth is a usual time to wait for the last items of others.
const EXPECTED_WAIT: u32 = 4;
/// Looks for another item before a helper sleeps: about a hundred microseconds.
const HELPER_LOOKS: u32 = 4_096;
/// Looks after which a helper yields: it may keep the caller from the core that both are on.
const LOOKS_PER_YIELD: u32 = 64;

/// A fixed number of threads that work on one job at a time together with the caller. Idle threads sleep.
///
/// Several callers may share a pool; their jobs run one after the other.
pub struct ThreadPool {
    shared: Arc<PoolState>,
    workers: Vec<JoinHandle<()>>,
    threads: usize,
    /// Held by the caller whose job it is.
    turn: Mutex<HelperPolicy>,
}

struct PoolState {
    phase: PhaseState,
    stop: AtomicBool,
    /// What a job panicked with on a helper, and whether one has.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    panicked: AtomicBool,
    /// Helpers that sleep: how many, and which.
    asleep: AtomicUsize,
    sleeps: Box<[AtomicBool]>,
    /// How often helpers have looked for work.
    #[cfg(test)]
    rounds: AtomicUsize,
}

/// A caller in its turn, with the threads that may help it.
pub(crate) struct Team<'a> {
    pool: &'a ThreadPool,
    members: usize,
    policy: MutexGuard<'a, HelperPolicy>,
}

impl ThreadPool {
    /// A pool of `threads` threads, the caller's included; at least 1.
    ///
    /// # Errors
    /// What the system says when it refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Arc<ThreadPool>> {
        let mut pool = ThreadPool::without_helpers(threads);
        for index in 1..pool.threads {
            let shared = Arc::clone(&pool.shared);
            let name = format!("orlop-cpu-{index}");
            pool.workers.push(std::thread::Builder::new().name(name).spawn(move || shared.serve(index))?);
        }
        Ok(Arc::new(pool))
    }

    /// A pool whose helpers have not started.
    pub(crate) fn without_helpers(threads: usize) -> ThreadPool {
        let threads = threads.clamp(1, u16::MAX.into());
        let shared = PoolState {
            phase: PhaseState::new(),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
            panicked: AtomicBool::new(false),
            asleep: AtomicUsize::new(0),
            sleeps: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            #[cfg(test)]
            rounds: AtomicUsize::new(0),
        };
        let turn = Mutex::new(HelperPolicy::new(Instant::now()));
        ThreadPool { shared: Arc::new(shared), workers: Vec::new(), threads, turn }
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
        self.threads
    }

    /// Calls `job` once with each number below `threads`, and returns when all calls have. The caller and up to
    /// `threads - 1` others share them; at most [`ThreadPool::threads`] calls are made. A thread may make several calls, one
    /// after the other, so none may wait for another. A job must not call this again for the same pool.
    ///
    /// # Panics
    /// If the job does, on any thread, once all calls are over.
    pub fn run(&self, threads: usize, job: &(dyn Fn(usize) + Sync)) {
        self.team(threads).run(job);
    }

    /// As [`ThreadPool::run`], unless the pool is at work: then nothing happens, and the result is `false`. So jobs can call
    /// it too.
    pub(crate) fn try_run(&self, threads: usize, job: &(dyn Fn(usize) + Sync)) -> bool {
        let policy = match self.turn.try_lock() {
            Ok(policy) => policy,
            Err(TryLockError::Poisoned(policy)) => policy.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.team_in_turn(threads, policy).run(job);
        true
    }

    /// Waits for its turn, and takes it with up to `threads` threads, the caller's included.
    pub(crate) fn team(&self, threads: usize) -> Team<'_> {
        self.team_in_turn(threads, self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn team_in_turn<'a>(&'a self, threads: usize, mut policy: MutexGuard<'a, HelperPolicy>) -> Team<'a> {
        policy.begin(Instant::now());
        Team { pool: self, members: threads.clamp(1, self.threads), policy }
    }

    /// Wakes those of the first `members` threads that sleep. One that is about to sleep may be missed: then it is not there
    /// for the current phase.
    fn wake(&self, members: usize) {
        let outside = self.threads - members;
        if self.shared.asleep.load(Ordering::Relaxed) > outside {
            for (worker, index) in self.workers.iter().zip(1..members) {
                if self.shared.is_up(index) {
                    worker.thread().unpark();
                }
            }
        }
    }
}

impl Team<'_> {
    /// How many threads share the next phases: all of the team, or 1 while the caller works alone.
    pub(crate) fn threads(&mut self) -> usize {
        if self.members > 1 && self.policy.invites(Instant::now) { self.members } else { 1 }
    }

    fn run(&mut self, job: &(dyn Fn(usize) + Sync)) {
        self.threads();
        self.phase(self.members, &|item, _| job(item));
    }

    /// Calls `job` once with the number of each of `items` items, and with the number of the thread that it is on: the
    /// caller's is 0. A thread has one item at a time. Returns when all are done; each phase sees what those before have
    /// written.
    ///
    /// # Panics
    /// If the job does, once all items are over.
    pub(crate) fn phase(&mut self, items: usize, job: &(dyn Fn(usize, usize) + Sync)) {
        if self.members == 1 || items <= 1 || self.policy.is_alone() {
            return (0..items).for_each(|item| job(item, 0));
        }
        let (state, items) = (&self.pool.shared.phase, items as u32);
        let began = Instant::now();
        // SAFETY: `open` asks for one caller at a time, which is the one that has the turn, and that it closes each phase: below,
        // and nothing unwinds before; the job outlives this call.
        unsafe { state.open(self.members as u32, items, Job::new(job)) };
        self.pool.wake(self.members);
        let (mut own, mut next, mut panicked) = (0, Some(0), None);
        while let Some(item) = next {
            let result = catch_unwind(AssertUnwindSafe(|| job(item, 0)));
            panicked = panicked.or(result.err());
            own += 1;
            next = state.claim_own(items);
        }
        let helped = items - own;
        if helped > 0 {
            self.wait(helped, began);
        }
        self.policy.phase(helped > 0, Instant::now);
        let on_helper = self.pool.shared.take_panic();
        if let Some(panic) = panicked.or(on_helper) {
            resume_unwind(panic);
        }
    }

    /// Waits for helpers to finish the last items. What goes beyond a part of the time that the caller's own items took is a
    /// loss: items are of similar size, and most kernels divide them further.
    fn wait(&mut self, helped: u32, began: Instant) {
        let state = &self.pool.shared.phase;
        for _ in 0..CALLER_LOOKS {
            if state.is_closed(helped) {
                return;
            }
            std::hint::spin_loop();
        }
        let tired = Instant::now();
        state.close(helped);
        let now = Instant::now();
        let lost = (now - tired).saturating_sub((tired - began) / EXPECTED_WAIT);
        self.policy.lose(lost, self.members, now);
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        self.policy.end(Instant::now());
    }
}

impl PoolState {
    fn serve(&self, index: usize) {
        let mut looks = 0;
        loop {
            #[cfg(test)]
            self.rounds.fetch_add(1, Ordering::Relaxed);
            if let Some(claimed) = self.phase.claim(index) {
                self.phase.run(claimed, index, |item| {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(item)) {
                        self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                        self.panicked.store(true, Ordering::Relaxed);
                    }
                });
                looks = 0;
            } else if looks < HELPER_LOOKS {
                looks += 1;
                if looks.is_multiple_of(LOOKS_PER_YIELD) {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            } else if self.stop.load(Ordering::SeqCst) {
                return;
            } else {
                self.sleep(index);
                looks = 0;
            }
        }
    }

    fn sleep(&self, index: usize) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        self.sleeps[index].store(true, Ordering::SeqCst);
        if !self.phase.has_work(index) && !self.stop.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.is_up(index);
    }

    /// Counts a helper as awake; whether it was not.
    fn is_up(&self, index: usize) -> bool {
        let slept = self.sleeps[index].swap(false, Ordering::SeqCst);
        if slept {
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
        slept
    }

    /// What a helper has panicked with since the last call. No phase is open.
    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        if !self.panicked.load(Ordering::Relaxed) {
            return None;
        }
        self.panicked.store(false, Ordering::Relaxed);
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPool of {} threads", self.threads())
    }
}

#[cfg(test)]
mod tests;
