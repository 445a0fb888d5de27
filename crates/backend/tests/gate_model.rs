//! The lock-free part of gates under [loom](https://docs.rs/loom), which tries all interleavings of threads and all values that
//! loads may see. With each ordering weakened, it must find a mistake.
#![allow(clippy::duplicate_mod)] // the same file with other orderings

// Each module is `gate/state.rs` with loom's types and the given orderings.
macro_rules! model {
    ($name:ident, $enter:ident, $leave_writer:ident, $leave_reader:ident) => {
        #[path = "."]
        mod $name {
            mod sync {
                pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

                pub(super) mod order {
                    use loom::sync::atomic::Ordering;

                    pub(crate) const ENTER: Ordering = Ordering::$enter;
                    pub(crate) const LEAVE_WRITER: Ordering = Ordering::$leave_writer;
                    pub(crate) const LEAVE_READER: Ordering = Ordering::$leave_reader;
                }
            }

            #[path = "../src/gate/state.rs"]
            mod state;

            use loom::cell::UnsafeCell;
            use loom::sync::Arc;
            use orlop_backend::Holder;
            use orlop_graph::AccessKind::{self, Read, Write};
            use state::GateState;

            struct Memory {
                gate: GateState,
                bytes: UnsafeCell<u64>,
            }

            // SAFETY: `Sync` asks that threads may share it: they touch `bytes` with claims only, which is what loom checks.
            unsafe impl Sync for Memory {}

            impl Memory {
                /// What is there, after adding one to it or not; `None` if the gate is busy.
                fn touch(&self, kind: AccessKind) -> Option<u64> {
                    self.gate.enter(kind).ok()?;
                    let found = match kind {
                        // SAFETY: reading asks that no thread writes meanwhile, which loom checks.
                        Read => self.bytes.with(|bytes| unsafe { *bytes }),
                        Write => self.bytes.with_mut(|bytes| {
                            // SAFETY: writing asks for exclusive access, which loom checks.
                            unsafe { *bytes += 1 };
                            // SAFETY: reading asks that no thread writes meanwhile, which loom checks.
                            unsafe { *bytes }
                        }),
                    };
                    self.gate.leave(kind, kind == Write);
                    Some(found)
                }
            }

            /// Two writers and a reader.
            pub(super) fn check() {
                loom::model(|| {
                    let memory = Arc::new(Memory { gate: GateState::default(), bytes: UnsafeCell::new(0) });
                    let threads = [Write, Read].map(|kind| {
                        let memory = Arc::clone(&memory);
                        loom::thread::spawn(move || memory.touch(kind))
                    });
                    let own = memory.touch(Write);
                    let [write, read] = threads.map(|thread| thread.join().unwrap());
                    let writes = [write, own].into_iter().flatten().count() as u64;
                    assert!(read.is_none_or(|found| found <= writes), "{read:?} of {writes}");
                    assert_eq!(memory.gate.generation(), writes);
                    assert_eq!(memory.touch(Read), Some(writes), "a gate that everyone has left is open");
                });
            }
        }
    };
}

model!(as_it_is, Acquire, Release, Release);
model!(weak_enter, Relaxed, Release, Release);
model!(weak_leave_of_writers, Acquire, Relaxed, Release);
model!(weak_leave_of_readers, Acquire, Release, Relaxed);

#[test]
fn one_writer_or_many_readers_see_what_was_written_before() {
    as_it_is::check();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn entering_must_acquire() {
    weak_enter::check();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn writers_must_release_when_they_leave() {
    weak_leave_of_writers::check();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn readers_must_release_when_they_leave() {
    weak_leave_of_readers::check();
}
