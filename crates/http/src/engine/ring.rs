//! Bounded rings: what the engine has generated and a connection has not taken yet.
//!
//! `tests/ring_model.rs` runs this file and `mailbox.rs` under [loom](https://docs.rs/loom).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use orlop_serve::{RequestEnd, RequestUsage};

use super::mailbox::{Key, Mailbox};
use super::sync::{Mutex, MutexGuard, Notify, PoisonError};
use crate::bounds;

/// More of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The prompt is about to be processed; this many tokens of it were in the cache.
    Admitted { cached: usize },
    /// More text.
    Text(Generated),
    /// The answer is complete.
    End(Ended),
}

/// Text, and the tokens it came from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Generated {
    pub(crate) text: String,
    pub(crate) tokens: usize,
    /// One for each token, if they are asked for.
    pub(crate) scores: Vec<Score>,
}

/// A token and the log probabilities of it and of the likeliest ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Score {
    pub(crate) token: u32,
    pub(crate) log_probability: f32,
    pub(crate) top: Vec<(u32, f32)>,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) end: RequestEnd,
    pub(crate) usage: RequestUsage,
    /// The text that ended it.
    pub(crate) stopped_by: Option<String>,
    pub(crate) times: Times,
}

/// How long an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// In the queue.
    pub(crate) queued: Duration,
    /// From then to the first token.
    pub(crate) prompt: Duration,
    /// From then to the last.
    pub(crate) generation: Duration,
}

/// What was generated for the answers of one request, by the number of the answer.
#[derive(Debug)]
pub(crate) struct Ring {
    state: Mutex<State>,
    filled: Notify,
    mailbox: Arc<Mailbox>,
}

#[derive(Debug)]
struct State {
    events: VecDeque<(usize, Event)>,
    bytes: usize,
    /// Answers that are not complete.
    open: usize,
}

impl Ring {
    pub(crate) fn new(answers: usize, mailbox: Arc<Mailbox>) -> Ring {
        let state = State { events: VecDeque::new(), bytes: 0, open: answers };
        Ring { state: Mutex::new(state), filled: Notify::new(), mailbox }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for more.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().bytes < bounds::RING_BYTES
    }

    /// Adds an event. Text of the same answer is joined where the reader is behind.
    pub(crate) fn push(&self, answer: usize, event: Event) {
        let mut state = self.lock();
        if matches!(event, Event::End(_)) {
            state.open = state.open.saturating_sub(1);
        }
        let behind = state.events.len() >= bounds::RING_EVENTS;
        match (event, state.events.back_mut()) {
            (Event::Text(more), Some((last, Event::Text(text)))) if behind && *last == answer => {
                let before = text.bytes();
                text.text.push_str(&more.text);
                text.tokens += more.tokens;
                text.scores.extend(more.scores);
                let after = text.bytes();
                state.bytes += after - before;
            }
            (event, _) => {
                state.bytes += bytes(&event);
                state.events.push_back((answer, event));
            }
        }
        drop(state);
        self.filled.notify_one();
    }

    /// The next event; `None` after the last one.
    pub(super) async fn next(&self) -> Option<(usize, Event)> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.lock();
                if let Some((answer, event)) = state.events.pop_front() {
                    let was_full = state.bytes >= bounds::RING_BYTES;
                    state.bytes = state.bytes.saturating_sub(bytes(&event));
                    if was_full && state.bytes < bounds::RING_BYTES {
                        self.mailbox.ring();
                    }
                    return Some((answer, event));
                }
                if state.open == 0 {
                    return None;
                }
            }
            filled.await;
        }
    }
}

/// Bytes of an event without its texts, or of a score, roughly.
const EACH: usize = 16;

impl Generated {
    /// Its bytes, roughly.
    fn bytes(&self) -> usize {
        let scores = self.scores.iter().map(|score| EACH * (1 + score.top.len()));
        EACH + self.text.len() + scores.sum::<usize>()
    }
}

fn bytes(event: &Event) -> usize {
    match event {
        Event::Text(text) => text.bytes(),
        _ => EACH,
    }
}

/// The reader of a ring. Dropping it cancels what is not complete.
#[derive(Debug)]
pub(crate) struct Ticket {
    key: Key,
    ring: Arc<Ring>,
}

impl Ticket {
    pub(crate) fn new(key: Key, ring: Arc<Ring>) -> Ticket {
        Ticket { key, ring }
    }

    /// The next event and its answer's number; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<(usize, Event)> {
        self.ring.next().await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.ring.mailbox.release(self.key);
    }
}
