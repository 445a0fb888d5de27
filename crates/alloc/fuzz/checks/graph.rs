//! What must hold for any text as a graph: it is refused, or it survives being written and read again, and its plan is sound.
//! The fuzz target and a bounded test share it.

use std::sync::Arc;

use orlop_alloc::{Assignment, GraphAllocator, PlanOptions, plan_memory};
use orlop_backend::HostBufferType;
use orlop_graph::Graph;

/// Reads and plans a graph; whether it was read.
///
/// # Panics
/// If the reader, the writer or the planner is wrong.
pub(crate) fn plan(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let graph = match Graph::from_json(text) {
        Ok(graph) => graph,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let written = graph.to_json().expect("what is read can be written");
    assert_eq!(Graph::from_json(&written).as_ref(), Ok(&graph));
    let allocator = GraphAllocator::new([HostBufferType::new("host") as _]).expect("a kind of memory");
    // Sizes may exceed 64 bits.
    let Ok(usage) = allocator.usage(&graph, &Assignment::default()) else { return true };
    if let Ok(plan) = plan_memory(&Arc::new(usage), &PlanOptions::default()) {
        plan.check().expect("a sound plan");
    }
    true
}
