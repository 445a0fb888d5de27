//! One phase at a time: numbered items that threads claim. The only code of the pool that threads share without a lock.
//!
//! The caller opens a phase, claims items like everyone else, and waits for those that helpers have claimed. A helper may use
//! the job only between a claim and the end of that item: the caller does not return before every claimed item is
//! finished. A helper that never runs claims nothing, so no thread waits for it.
//!
//! `tests/phase_model.rs` runs this file under [loom](https://docs.rs/loom), with each ordering as it is and weakened.

use super::sync::{AtomicU32, AtomicU64, Condvar, Mutex, Ordering, UnsafeCell, order};

/// A closure that takes the number of an item and of the thread that runs it, with its lifetime taken away.
#[derive(Clone, Copy)]
pub(crate) struct Job(*const (dyn Fn(usize, usize) + Sync));

/// The phase that is open, if one is.
pub(crate) struct PhaseState {
    /// Threads that may claim in the upper half, unclaimed items in the lower.
    open: AtomicU64,
    /// Items that helpers have finished, and [`CALLER_SLEEPS`].
    finished: AtomicU32,
    /// The job and its number of items. The caller writes it while no item is claimed or can be; helpers read it while they
    /// hold a claim.
    job: UnsafeCell<Option<(Job, u32)>>,
    /// Where the caller sleeps.
    lock: Mutex<()>,
    wake: Condvar,
}

/// A helper's claim to one item.
pub(crate) struct Claimed {
    job: Job,
    item: usize,
}

/// In [`PhaseState::finished`]: the caller has to be woken.
const CALLER_SLEEPS: u32 = 1 << 31;
const MEMBERS: u32 = 32;

// SAFETY: `Send` asks that another thread may use the pointer: the closure behind it is `Sync`, and `PhaseState::open`'s
// contract keeps it alive for as long as a helper holds a claim.
unsafe impl Send for Job {}

// SAFETY: `Sync` asks that threads may share it: all but `job` is made for that, and claims order the accesses to `job`, as the
// field says.
unsafe impl Sync for PhaseState {}

impl Job {
    pub(crate) fn new<'a>(job: &'a (dyn Fn(usize, usize) + Sync + 'a)) -> Job {
        let job: *const (dyn Fn(usize, usize) + Sync + 'a) = job;
        // SAFETY: `transmute` asks that the result is valid: only the lifetime changes, and the pointer is used by
        // `PhaseState::open`'s contract only.
        Job(unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize, usize) + Sync + 'a),
                *const (dyn Fn(usize, usize) + Sync + 'static),
            >(job)
        })
    }
}

impl PhaseState {
    pub(crate) fn new() -> PhaseState {
        PhaseState {
            open: AtomicU64::new(0),
            finished: AtomicU32::new(0),
            job: UnsafeCell::new(None),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Opens a phase of `items` items to threads with numbers from 1 to below `members`. Item 0 is the caller's.
    ///
    /// # Safety
    /// One caller at a time: the phase before was closed ([`PhaseState::is_closed`] or [`PhaseState::close`]), and no other
    /// thread opens one meanwhile. The job lives until this phase is closed.
    pub(crate) unsafe fn open(&self, members: u32, items: u32, job: Job) {
        // SAFETY: writing asks for exclusive access: no item of the phase before is held, by this function's contract, and none
        // can be claimed before the store below.
        self.job.with_mut(|place| unsafe { *place = Some((job, items)) });
        self.finished.store(0, Ordering::Relaxed);
        self.open.store(u64::from(members) << MEMBERS | u64::from(items.saturating_sub(1)), order::OPEN);
    }

    /// Whether there is an item for a thread.
    pub(crate) fn has_work(&self, thread: usize) -> bool {
        left_for(self.open.load(Ordering::Relaxed), thread).is_some()
    }

    /// Takes one of the items that are left, counted downwards.
    fn take(&self, thread: usize) -> Option<u32> {
        let mut seen = self.open.load(Ordering::Relaxed);
        loop {
            let left = left_for(seen, thread)?;
            match self.open.compare_exchange_weak(seen, seen - 1, order::CLAIM, Ordering::Relaxed) {
                Ok(_) => return Some(left),
                Err(now) => seen = now,
            }
        }
    }

    /// The next item, for the caller of this phase of `items` items.
    pub(crate) fn claim_own(&self, items: u32) -> Option<usize> {
        self.take(0).map(|left| (items - left) as usize)
    }

    /// The next item, for a helper. It must be given to [`PhaseState::run`].
    pub(crate) fn claim(&self, thread: usize) -> Option<Claimed> {
        let left = self.take(thread)?;
        // SAFETY: reading asks that no thread writes meanwhile: the caller does so while no claim is held only, and this thread
        // holds one; the claim has synchronized with the store that opened the phase.
        let (job, items) = self.job.with(|place| unsafe { *place })?;
        Some(Claimed { job, item: (items - left) as usize })
    }

    /// Runs a claimed item, and ends the claim. `guarded` calls the closure it is given and catches panics.
    pub(crate) fn run(&self, claimed: Claimed, thread: usize, guarded: impl FnOnce(&dyn Fn())) {
        // SAFETY: dereferencing asks for a live closure: it lives until the phase is closed, by `open`'s contract, which waits
        // for the item that is held here.
        let job = unsafe { &*claimed.job.0 };
        guarded(&|| job(claimed.item, thread));
        if self.finished.fetch_add(1, order::FINISH) & CALLER_SLEEPS != 0 {
            // The caller holds the lock from before it sets the mark until it sleeps.
            drop(self.lock.lock());
            self.wake.notify_one();
        }
    }

    /// Whether helpers have finished `helped` items. All items are claimed, and these are the ones that the caller has not
    /// run itself.
    pub(crate) fn is_closed(&self, helped: u32) -> bool {
        self.finished.load(order::CLOSE) & !CALLER_SLEEPS == helped
    }

    /// Sleeps until helpers have finished `helped` items.
    pub(crate) fn close(&self, helped: u32) {
        let mut lock = self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut finished = self.finished.fetch_or(CALLER_SLEEPS, order::CLOSE);
        while finished & !CALLER_SLEEPS != helped {
            lock = self.wake.wait(lock).unwrap_or_else(|poisoned| poisoned.into_inner());
            finished = self.finished.load(order::CLOSE);
        }
    }
}

/// Items that are left, if there are some and the thread may claim them.
fn left_for(open: u64, thread: usize) -> Option<u32> {
    let (members, left) = (open >> MEMBERS, open as u32);
    (left > 0 && (thread as u64) < members).then_some(left)
}
