//! The clock of `--time-limit`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Measures time against an optional limit.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    limit: Option<Duration>,
    was_over: AtomicBool,
}

impl Clock {
    /// Starts now.
    pub(super) fn start(limit: Option<Duration>) -> Clock {
        Clock { began: Instant::now(), limit, was_over: AtomicBool::new(false) }
    }

    pub(super) fn is_over(&self) -> bool {
        let over = self.limit.is_some_and(|limit| self.began.elapsed() >= limit);
        self.was_over.fetch_or(over, Ordering::Relaxed);
        over
    }

    /// Whether [`Self::is_over`] has ever returned `true`.
    pub(super) fn was_over(&self) -> bool {
        self.was_over.load(Ordering::Relaxed)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}
