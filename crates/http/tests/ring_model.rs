//! Rings and mailboxes under [loom](https://docs.rs/loom), which tries all interleavings of threads: no wake-up is lost between a
//! full ring and its reader, and between a reader that leaves and those that wait for it. Where a sleeper does not look
//! before it sleeps, or a notification without a sleeper is lost, it must find a deadlock.
#![allow(clippy::duplicate_mod)] // the same files with other types

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::Mutex;

/// Bounds of rings: one event fills them.
mod bounds {
    pub(crate) const RING_BYTES: usize = 1;
    pub(crate) const RING_EVENTS: usize = 64;
}

/// tokio's `Notify`, as far as rings and mailboxes use it. Unless it `KEEPS` them, notifications without a sleeper are lost.
#[derive(Debug, Default)]
struct Notify<const KEEPS: bool>(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// One call of `notify_one` that no sleeper has taken.
    permit: bool,
    /// Calls of `notify_waiters`.
    calls: usize,
    sleepers: Vec<Waker>,
}

struct Notified<'a, const KEEPS: bool> {
    notify: &'a Notify<KEEPS>,
    /// Calls of `notify_waiters` before this.
    before: usize,
}

impl<const KEEPS: bool> Notify<KEEPS> {
    fn new() -> Notify<KEEPS> {
        Notify::default()
    }

    fn notified(&self) -> Notified<'_, KEEPS> {
        Notified { notify: self, before: self.0.lock().unwrap().calls }
    }

    fn notify_one(&self) {
        self.notify(|waiting| waiting.permit = true);
    }

    fn notify_waiters(&self) {
        self.notify(|waiting| waiting.calls += 1);
    }

    fn notify(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.0.lock().unwrap();
        if KEEPS || !waiting.sleepers.is_empty() {
            change(&mut waiting);
        }
        let sleepers = std::mem::take(&mut waiting.sleepers);
        drop(waiting);
        sleepers.into_iter().for_each(Waker::wake);
    }
}

impl<const KEEPS: bool> Notified<'_, KEEPS> {
    /// In tokio, begins to wait; here, the call of `notified` has done so.
    fn enable(self: Pin<&mut Self>) {}
}

impl<const KEEPS: bool> Future for Notified<'_, KEEPS> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.notify.0.lock().unwrap();
        if std::mem::take(&mut waiting.permit) || waiting.calls != self.before {
            return Poll::Ready(());
        }
        waiting.sleepers.push(context.waker().clone());
        Poll::Pending
    }
}

/// Wakes a thread of loom.
struct Bell(loom::sync::Notify);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.notify();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let bell = Arc::new(Bell(loom::sync::Notify::new()));
    let waker = Waker::from(Arc::clone(&bell));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => bell.0.wait(),
        }
    }
}

// Each module is `engine/ring.rs` and `engine/mailbox.rs` with loom's types.
macro_rules! model {
    ($name:ident, keeps: $keeps:literal, looks: $looks:literal) => {
        #[path = "."]
        #[allow(dead_code)]
        mod $name {
            mod sync {
                use std::time::Duration;

                pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
                pub(super) use std::sync::PoisonError;

                pub(super) type Notify = crate::Notify<$keeps>;

                pub(super) fn wait_while<T>(
                    bell: &Condvar,
                    mut guard: MutexGuard<'_, T>,
                    _: Duration,
                    mut idle: impl FnMut(&mut T) -> bool,
                ) {
                    while !$looks || idle(&mut guard) {
                        guard = bell.wait(guard).unwrap();
                        if !$looks {
                            break;
                        }
                    }
                }
            }

            mod generation {
                #[derive(Debug)]
                pub(crate) struct Generation;

                impl Generation {
                    pub(crate) fn tokens(&self) -> usize {
                        1
                    }
                }
            }

            #[path = "../src/engine/mailbox.rs"]
            mod mailbox;
            #[path = "../src/engine/ring.rs"]
            mod ring;

            use std::sync::Arc;
            use std::time::Duration;

            use generation::Generation;
            use mailbox::{Mailbox, Message, Room, Taken};
            use orlop_serve::{RequestEnd, RequestUsage};
            use ring::{Ended, Event, Generated, Ring, Ticket, Times};

            const ROOM: Room = Room { requests: 2, tokens: 2 };

            /// The engine's thread pauses at a full ring, which a connection reads.
            pub(super) fn full() {
                // All of them would take minutes.
                let mut model = loom::model::Builder::new();
                model.preemption_bound = Some(2);
                model.check(|| {
                    let mailbox = Arc::<Mailbox>::default();
                    let ring = Arc::new(Ring::new(1, Arc::clone(&mailbox)));
                    let reader = Arc::clone(&ring);
                    let engine = loom::thread::spawn(move || {
                        let mut left = 2;
                        while left > 0 {
                            mailbox.take();
                            if ring.has_room() {
                                ring.push(0, Event::Text(Generated { tokens: 1, ..Generated::default() }));
                                left -= 1;
                            } else {
                                mailbox.wait(Duration::MAX);
                            }
                        }
                        let (usage, times) = (RequestUsage::default(), Times::default());
                        let ended = Ended { end: RequestEnd::Done, usage, stopped_by: None, times };
                        ring.push(0, Event::End(ended));
                    });
                    let mut tokens = 0;
                    while let Some((_, event)) = crate::block_on(reader.next()) {
                        if let Event::Text(text) = event {
                            tokens += text.tokens;
                        }
                    }
                    engine.join().unwrap();
                    assert_eq!(tokens, 2);
                });
            }

            /// A connection leaves, while the engine's thread sleeps and another waits until all have left.
            pub(super) fn left() {
                loom::model(|| {
                    let mailbox = Arc::<Mailbox>::default();
                    let ring = Arc::new(Ring::new(1, Arc::clone(&mailbox)));
                    let key = mailbox.submit(0, Generation, Arc::clone(&ring), ROOM).unwrap();
                    let reader = loom::thread::spawn(move || drop(Ticket::new(key, ring)));
                    let told = Arc::clone(&mailbox);
                    let engine = loom::thread::spawn(move || {
                        let mut cancelled = Vec::new();
                        while cancelled.is_empty() {
                            told.wait(Duration::MAX);
                            cancelled.extend(told.take().messages.into_iter().filter_map(|message| {
                                match message {
                                    Message::Release(key) => Some(key),
                                    Message::Submit { .. } => None,
                                }
                            }));
                        }
                        cancelled
                    });
                    crate::block_on(mailbox.emptied());
                    reader.join().unwrap();
                    assert_eq!(engine.join().unwrap(), [key]);
                });
            }

            /// A server ends while a request is submitted: the engine's thread sees the request, or the request is refused.
            pub(super) fn ending() {
                loom::model(|| {
                    let mailbox = Arc::<Mailbox>::default();
                    let client = Arc::clone(&mailbox);
                    let submitting = loom::thread::spawn(move || {
                        let ring = Arc::new(Ring::new(1, Arc::clone(&client)));
                        client.submit(0, Generation, ring, ROOM).is_ok()
                    });
                    let told = Arc::clone(&mailbox);
                    let engine = loom::thread::spawn(move || {
                        let mut seen = 0;
                        loop {
                            let Taken { messages, ends } = told.take();
                            seen += messages.len();
                            if ends.is_some() {
                                return seen;
                            }
                            told.wait(Duration::MAX);
                        }
                    });
                    mailbox.end_within(Duration::ZERO);
                    assert_eq!(usize::from(submitting.join().unwrap()), engine.join().unwrap());
                });
            }
        }
    };
}

model!(as_it_is, keeps: true, looks: true);
model!(forgetful, keeps: false, looks: true);
model!(hasty, keeps: true, looks: false);

#[test]
fn a_full_ring_and_its_reader_wake_each_other() {
    as_it_is::full();
}

#[test]
fn a_reader_that_leaves_is_noticed() {
    as_it_is::left();
}

#[test]
fn a_request_is_seen_before_the_end_or_refused() {
    as_it_is::ending();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_reader_must_not_miss_what_was_pushed_before_it_slept() {
    forgetful::full();
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_engine_must_look_for_a_ring_before_it_sleeps() {
    hasty::full();
}

#[test]
#[should_panic(expected = "deadlock")]
fn those_who_wait_for_readers_must_not_miss_the_last_one() {
    forgetful::left();
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_engine_must_look_for_messages_before_it_sleeps() {
    hasty::left();
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_engine_must_look_for_the_end_before_it_sleeps() {
    hasty::ending();
}
