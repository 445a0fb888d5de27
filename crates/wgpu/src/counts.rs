use std::sync::atomic::{AtomicU64, Ordering};

/// Objects that a device has made since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Memory of any kind.
    pub buffers: u64,
    /// Compiled kernels, each with its shader and its layout.
    pub pipelines: u64,
    /// Sets of bindings.
    pub bind_groups: u64,
    /// Sets of timestamps.
    pub query_sets: u64,
    /// Command encoders, each of which becomes one command buffer.
    pub encoders: u64,
    /// Submissions to the driver.
    pub submissions: u64,
}

impl Counts {
    /// What was made since an earlier count.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            buffers: self.buffers - earlier.buffers,
            pipelines: self.pipelines - earlier.pipelines,
            bind_groups: self.bind_groups - earlier.bind_groups,
            query_sets: self.query_sets - earlier.query_sets,
            encoders: self.encoders - earlier.encoders,
            submissions: self.submissions - earlier.submissions,
        }
    }
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) buffers: AtomicU64,
    pub(crate) pipelines: AtomicU64,
    pub(crate) bind_groups: AtomicU64,
    pub(crate) query_sets: AtomicU64,
    pub(crate) encoders: AtomicU64,
    pub(crate) submissions: AtomicU64,
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
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
