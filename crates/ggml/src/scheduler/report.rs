//! The log of splits and copies.

use std::sync::atomic::{AtomicU64, Ordering};

use super::graph::ScheduledGraph;
use crate::raw::TensorRef;
use crate::runtime::{Interposer, log};

static GRAPHS: AtomicU64 = AtomicU64::new(0);

/// Logs the splits and copies of a graph, if enabled. ggml copies a tensor once to a backend, whatever is written meanwhile.
pub(crate) fn splits(ours: &Interposer, graph: &ScheduledGraph) {
    if !ours.log {
        return;
    }
    let number = GRAPHS.fetch_add(1, Ordering::Relaxed) + 1;
    let bytes = |tensors: &[TensorRef]| -> usize {
        tensors.iter().map(|tensor| ours.host.nbytes(tensor.as_ptr())).sum()
    };
    let (own, theirs) = graph.copied();
    log(format_args!(
        "schedule {number} ({} nodes): {} splits, {} copies of {} bytes, ggml's {} of {}",
        graph.node_count(),
        graph.splits.len(),
        own.len(),
        bytes(&own),
        theirs.len(),
        bytes(&theirs)
    ));
}
