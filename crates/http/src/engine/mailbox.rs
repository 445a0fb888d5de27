//! What the connections tell the engine's thread.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::generation::Generation;
use super::ring::Ring;
use std::sync::Arc;

/// Names a submitted generation, until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) u64);

/// A message to the engine's thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// Answer these prompts.
    Submit(Key, Box<Generation>, Arc<Ring>),
    /// The answers are complete, or no longer wanted.
    Release(Key),
}

/// Messages in order, for one reader that sleeps while there is nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    /// Something has changed that is no message.
    rung: bool,
    /// Generations that are submitted and not released.
    live: usize,
    next: u64,
    /// Nothing new is taken, and what runs ends at this time.
    ends: Option<Instant>,
}

/// Why a generation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// This many are there already.
    Full(usize),
    /// The server shuts down.
    Ending,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a generation, unless `most` are there.
    pub(crate) fn submit(
        &self,
        generation: Generation,
        ring: Arc<Ring>,
        most: usize,
    ) -> Result<Key, NotTaken> {
        let mut state = self.lock();
        if state.ends.is_some() {
            return Err(NotTaken::Ending);
        }
        if state.live >= most {
            return Err(NotTaken::Full(state.live));
        }
        let key = Key(state.next);
        state.next += 1;
        state.live += 1;
        state.messages.push_back(Message::Submit(key, Box::new(generation), ring));
        self.bell.notify_one();
        Ok(key)
    }

    /// Releases a generation, whether it is complete or not. Once for each.
    pub(crate) fn release(&self, key: Key) {
        let mut state = self.lock();
        state.live = state.live.saturating_sub(1);
        state.messages.push_back(Message::Release(key));
        self.bell.notify_one();
    }

    /// Wakes the reader.
    pub(crate) fn ring(&self) {
        self.lock().rung = true;
        self.bell.notify_one();
    }

    /// Takes nothing new from now on; what runs may go on until then. The earliest time counts.
    pub(crate) fn end_at(&self, time: Instant) {
        let mut state = self.lock();
        state.ends = Some(state.ends.map_or(time, |known| known.min(time)));
        state.rung = true;
        self.bell.notify_one();
    }

    /// When everything ends, if that is known.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.lock().ends
    }

    /// The messages that have come.
    pub(crate) fn take(&self) -> VecDeque<Message> {
        let mut state = self.lock();
        state.rung = false;
        std::mem::take(&mut state.messages)
    }

    /// Waits for a message or a ring.
    pub(crate) fn wait(&self, most: Duration) {
        let state = self.lock();
        let idle = |state: &mut State| state.messages.is_empty() && !state.rung;
        drop(self.bell.wait_timeout_while(state, most, idle).unwrap_or_else(PoisonError::into_inner));
    }
}
