//! Requests as the scheduler sees them.

use std::fmt;

use crate::{Rows, StepRow};

/// A request; later ones have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The tokens of the prompt.
    pub prompt: Vec<u32>,
    /// Maximum number of tokens to generate. A number beyond the context is the context's rest.
    pub max_tokens: usize,
    /// Prefixes are shared among requests with equal salts only.
    pub salt: u64,
}

/// Chooses the tokens of a request, and hears of its end.
pub trait Request {
    /// What it chooses from.
    fn rows(&self) -> Rows;

    /// Whether it can take more tokens now. A request that cannot keeps its pages, and is left out of steps.
    fn is_ready(&self) -> bool {
        true
    }

    /// Chooses what follows, and appends it to `tokens`: one token, or several where the others are certain, but at most `room`.
    fn choose(&mut self, row: StepRow<'_>, tokens: &mut Vec<u32>, room: usize) -> Flow;

    /// Its prompt is about to be processed; this many tokens of it are in the cache already. Called once.
    fn admitted(&mut self, _cached: usize) {}

    /// It has ended.
    fn end(self, end: RequestEnd, usage: RequestUsage);
}

/// Whether a request goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// More tokens are wanted.
    More,
    /// It is complete; the last token that was chosen may be an end token.
    Done,
    /// What it asks for cannot be continued: it ends with this message.
    Refused(String),
}

/// Why a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// It was complete.
    Done,
    /// It has the maximum number of tokens, or the context is full.
    Length,
    /// It was cancelled.
    Cancelled,
    /// What it asked for could not be continued.
    Refused(String),
    /// The engine failed.
    Failed(String),
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestUsage {
    /// Of the prompt.
    pub prompt: usize,
    /// Of the prompt, that were in the cache when it began.
    pub cached: usize,
    /// Generated.
    pub generated: usize,
    /// Drafted, and verified by the engine.
    pub drafted: usize,
    /// Of the drafted ones, those that the request chose.
    pub accepted: usize,
}
