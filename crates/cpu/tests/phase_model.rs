//! The lock-free part of the thread pool under [loom](https://docs.rs/loom), which tries all interleavings of threads and all
//! values that loads may see. With each ordering weakened, it must find a mistake.
#![allow(clippy::duplicate_mod)] // the same file with other orderings

// Each module is `pool/phase.rs` with loom's types and the given orderings.
macro_rules! model {
    ($name:ident, $open:ident, $claim:ident, $finish:ident, $close:ident) => {
        #[path = "."]
        mod $name {
            mod sync {
                pub(super) use loom::cell::UnsafeCell;
                pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
                pub(super) use loom::sync::{Condvar, Mutex};

                pub(super) mod order {
                    use loom::sync::atomic::Ordering;

                    pub(crate) const OPEN: Ordering = Ordering::$open;
                    pub(crate) const CLAIM: Ordering = Ordering::$claim;
                    pub(crate) const FINISH: Ordering = Ordering::$finish;
                    pub(crate) const CLOSE: Ordering = Ordering::$close;
                }
            }

            #[allow(dead_code)]
            #[path = "../src/pool/phase.rs"]
            mod phase;

            use loom::cell::UnsafeCell;
            use loom::sync::Arc;
            use phase::{Job, PhaseState};

            /// Two phases of two items, with a helper that looks for work three times, or not at all before the caller is done.
            /// In the second phase each item reads what the other one wrote in the first.
            pub(super) fn check() {
                loom::model(|| {
                    let state = Arc::new(PhaseState::new());
                    let helper = Arc::clone(&state);
                    let helper = loom::thread::spawn(move || {
                        for _ in 0..3 {
                            match helper.claim(1) {
                                Some(claimed) => helper.run(claimed, 1, |item| item()),
                                None => loom::thread::yield_now(),
                            }
                        }
                    });
                    let places = [UnsafeCell::new(0), UnsafeCell::new(0)];
                    let first = |item: usize, _: usize| {
                        // SAFETY: writing asks for exclusive access, which loom checks.
                        places[item].with_mut(|place| unsafe { *place = 1 + item });
                    };
                    let second = |item: usize, _: usize| {
                        // SAFETY: reading asks that no thread writes meanwhile, which loom checks.
                        places[1 - item].with(|place| assert_eq!(unsafe { *place }, 2 - item));
                    };
                    phase(&state, &first);
                    phase(&state, &second);
                    // SAFETY: as above.
                    places[0].with(|place| assert_eq!(unsafe { *place }, 1));
                    helper.join().unwrap();
                });
            }

            /// What the caller does, as `Team::phase`.
            fn phase(state: &PhaseState, job: &dyn Fn(usize, usize)) {
                /// Loom's cells are not `Sync`, as loom is to find out whether they are used so.
                struct Shared<'a>(&'a dyn Fn(usize, usize));
                // SAFETY: `Sync` asks that threads may share it: loom runs one at a time.
                unsafe impl Sync for Shared<'_> {}
                let job = Shared(job);
                let job = move |item, thread| {
                    let job = &job;
                    (job.0)(item, thread);
                };
                // SAFETY: `open` asks for one caller at a time that closes each phase, and for a job that lives until then: below.
                unsafe { state.open(2, 2, Job::new(&job)) };
                let mut own = 1;
                job(0, 0);
                while let Some(item) = state.claim_own(2) {
                    job(item, 0);
                    own += 1;
                }
                if !state.is_closed(2 - own) {
                    state.close(2 - own);
                }
            }
        }
    };
}

model!(as_it_is, Release, Acquire, Release, Acquire);
model!(weak_open, Relaxed, Acquire, Release, Acquire);
model!(weak_claim, Release, Relaxed, Release, Acquire);
model!(weak_finish, Release, Acquire, Relaxed, Acquire);
model!(weak_close, Release, Acquire, Release, Relaxed);

#[test]
fn items_run_once_and_phases_see_what_those_before_wrote() {
    as_it_is::check();
}

#[test]
#[should_panic]
fn opening_a_phase_must_release() {
    weak_open::check();
}

#[test]
#[should_panic]
fn claiming_an_item_must_acquire() {
    weak_claim::check();
}

#[test]
#[should_panic]
fn finishing_an_item_must_release() {
    weak_finish::check();
}

#[test]
#[should_panic]
fn closing_a_phase_must_acquire() {
    weak_close::check();
}
