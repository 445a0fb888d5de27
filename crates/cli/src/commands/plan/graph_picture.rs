//! Pictures of the plans of graphs.

use orlop::alloc::MemoryPlan;
use orlop::view::{Labels, Picture};

use crate::graph_file::GraphCase;

/// The picture of a graph's plan, with the ops and kinds of its file.
pub(super) fn picture(case: &GraphCase, plan: &MemoryPlan, title: &str) -> Picture {
    let usage = &plan.usage;
    let step = |index: usize| match usage.step(index).writes.first() {
        Some(value) => format!("{} {}", case.tags[value.index()].op, usage.name(*value)),
        None => String::new(),
    };
    let labels = Labels {
        kind: &|value| case.tags[value.index()].kind,
        step: &step,
        device: &|_| None,
        arena: &|arena| usage.arenas[arena].name.clone(),
        at: &[],
    };
    Picture::of_plan(title, plan, &labels)
}
