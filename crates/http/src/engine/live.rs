//! The scheduler's state for those who watch it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use orlop_serve::Snapshot;
use tokio::sync::watch;

/// Shortest time between two snapshots.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);

/// What the engine's thread publishes.
#[derive(Debug)]
pub(crate) struct Live {
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    published: Mutex<Option<Instant>>,
    /// Estimated seconds until a new request begins, as bits.
    wait: AtomicU64,
}

impl Live {
    pub(crate) fn new() -> Live {
        let wait = AtomicU64::new(0f64.to_bits());
        Live { snapshots: watch::Sender::new(None), published: Mutex::new(None), wait }
    }

    /// Publishes a snapshot, if someone watches and the last one is old or nothing will happen for a while.
    pub(crate) fn publish(&self, wait: Option<f64>, idle: bool, snapshot: impl FnOnce() -> Snapshot) {
        self.wait.store(wait.unwrap_or(0.0).to_bits(), Ordering::Relaxed);
        if self.snapshots.receiver_count() == 0 {
            return;
        }
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if idle || published.is_none_or(|time| time.elapsed() >= INTERVAL) {
            *published = Some(Instant::now());
            self.snapshots.send_replace(Some(Arc::new(snapshot())));
        }
    }

    /// Nothing more will happen: ends all watchers.
    pub(crate) fn end(&self) {
        self.snapshots.send_replace(None);
    }

    /// A watcher of snapshots.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.subscribe()
    }

    /// Estimated time until a new request begins; none before speeds were measured.
    pub(crate) fn wait(&self) -> Duration {
        Duration::try_from_secs_f64(f64::from_bits(self.wait.load(Ordering::Relaxed))).unwrap_or_default()
    }
}
