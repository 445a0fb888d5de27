//! Counts of driver objects and waits, for tests and benchmarks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of objects that a device has created, and of waits, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Buffers of any kind.
    pub buffers: u64,
    /// Compute pipelines.
    pub pipelines: u64,
    /// Bind groups.
    pub bind_groups: u64,
    /// Timestamp query sets.
    pub query_sets: u64,
    /// Command encoders.
    pub encoders: u64,
    /// Queue submissions.
    pub submissions: u64,
    /// Waits of the host for a submission.
    pub waits: u64,
}

impl Counts {
    /// The difference to earlier counts.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            buffers: self.buffers - earlier.buffers,
            pipelines: self.pipelines - earlier.pipelines,
            bind_groups: self.bind_groups - earlier.bind_groups,
            query_sets: self.query_sets - earlier.query_sets,
            encoders: self.encoders - earlier.encoders,
            submissions: self.submissions - earlier.submissions,
            waits: self.waits - earlier.waits,
        }
    }
}

/// Atomic [`Counts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) buffers: AtomicU64,
    pub(crate) pipelines: AtomicU64,
    pub(crate) bind_groups: AtomicU64,
    pub(crate) query_sets: AtomicU64,
    pub(crate) encoders: AtomicU64,
    pub(crate) submissions: AtomicU64,
    pub(crate) waits: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            buffers: read(&self.buffers),
            pipelines: read(&self.pipelines),
            bind_groups: read(&self.bind_groups),
            query_sets: read(&self.query_sets),
            encoders: read(&self.encoders),
            submissions: read(&self.submissions),
            waits: read(&self.waits),
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
