//! The log of splits and copies.

use std::sync::atomic::{AtomicU64, Ordering};

use super::graph::ScheduledGraph;
use crate::runtime::{Interposer, log};

static GRAPHS: AtomicU64 = AtomicU64::new(0);

/// Logs the splits and copies of a graph, if enabled.
pub(crate) fn splits(ours: &Interposer, graph: &ScheduledGraph) {
    if !ours.log {
        return;
    }
    let number = GRAPHS.fetch_add(1, Ordering::Relaxed) + 1;
    let copies = &graph.copies.copies;
    let bytes: usize = copies.iter().map(|copied| ours.host.nbytes(copied.original.as_ptr())).sum();
    log(format_args!(
        "schedule {number} ({} nodes): {} splits, {} copies of {bytes} bytes",
        graph.node_count(),
        graph.splits.len(),
        copies.len()
    ));
}
