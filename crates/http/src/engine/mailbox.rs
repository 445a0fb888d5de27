//! What the connections tell the engine's thread.
//!
//! `tests/ring_model.rs` runs this file and `ring.rs` under [loom](https://docs.rs/loom).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::generation::Generation;
use super::ring::Ring;
use super::sync::{Condvar, Mutex, MutexGuard, Notify, PoisonError, wait_while};

/// Longer than a server runs.
const NEVER: Duration = Duration::from_secs(1 << 32);

/// Names a submitted generation, until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) u64);

/// A message to the engine's thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// Answer these prompts.
    Submit {
        key: Key,
        /// The index of the model.
        model: usize,
        generation: Box<Generation>,
        ring: Arc<Ring>,
    },
    /// The answers are complete, or no longer wanted.
    Release(Key),
}

/// Messages in order, for one reader that sleeps while there is nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    bell: Condvar,
    /// A generation was released.
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    /// Something has changed that is no message.
    rung: bool,
    /// Generations that are submitted and not released, and the tokens of each.
    live: HashMap<Key, usize>,
    next: u64,
    /// Nothing new is taken, and what runs ends at this time.
    ends: Option<Instant>,
}

/// Why a generation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// This many are there already.
    Full(usize),
    /// Those that are there have this many tokens already.
    Tokens(usize),
    /// The server shuts down.
    Ending,
}

/// How much a mailbox takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Generations that are not released.
    pub(crate) requests: usize,
    /// Their tokens; one generation is taken in any case.
    pub(crate) tokens: usize,
}

/// What has come.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) messages: VecDeque<Message>,
    /// No message comes after these but releases, and everything ends at this time.
    pub(crate) ends: Option<Instant>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a generation to a model, if there is room.
    pub(crate) fn submit(
        &self,
        model: usize,
        generation: Generation,
        ring: Arc<Ring>,
        room: Room,
    ) -> Result<Key, NotTaken> {
        let mut state = self.lock();
        if state.ends.is_some() {
            return Err(NotTaken::Ending);
        }
        let live = state.live.len();
        if live >= room.requests {
            return Err(NotTaken::Full(live));
        }
        let (known, tokens) = (state.live.values().sum::<usize>(), generation.tokens());
        if live > 0 && known.saturating_add(tokens) > room.tokens {
            return Err(NotTaken::Tokens(known));
        }
        let key = Key(state.next);
        state.next += 1;
        state.live.insert(key, tokens);
        state.messages.push_back(Message::Submit { key, model, generation: Box::new(generation), ring });
        self.bell.notify_one();
        Ok(key)
    }

    /// Releases a generation, whether it is complete or not. Once for each.
    pub(crate) fn release(&self, key: Key) {
        let mut state = self.lock();
        state.live.remove(&key);
        state.messages.push_back(Message::Release(key));
        self.bell.notify_one();
        self.released.notify_waiters();
    }

    /// Wakes the reader.
    pub(crate) fn ring(&self) {
        self.lock().rung = true;
        self.bell.notify_one();
    }

    /// Waits until all generations are released.
    pub(crate) async fn emptied(&self) {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            if self.lock().live.is_empty() {
                return;
            }
            released.await;
        }
    }

    /// Takes nothing new from now on; what runs may go on for this time. The earliest end counts.
    pub(crate) fn end_within(&self, time: Duration) {
        let now = Instant::now();
        let time = now.checked_add(time).unwrap_or(now + NEVER);
        let mut state = self.lock();
        state.ends = Some(state.ends.map_or(time, |known| known.min(time)));
        state.rung = true;
        self.bell.notify_one();
    }

    /// When everything ends, if that is known.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.lock().ends
    }

    /// The messages that have come, and the end. Both at once: a generation that was submitted before the end is seen with it.
    pub(crate) fn take(&self) -> Taken {
        let mut state = self.lock();
        state.rung = false;
        Taken { messages: std::mem::take(&mut state.messages), ends: state.ends }
    }

    /// Waits for a message or a ring.
    pub(crate) fn wait(&self, most: Duration) {
        let state = self.lock();
        wait_while(&self.bell, state, most, |state| state.messages.is_empty() && !state.rung);
    }
}
