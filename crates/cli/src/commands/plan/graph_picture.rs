//! Pictures of the plans of graphs.

use orlop::alloc::{FittedStep, MemoryPlan, PlanWithin, ValueId};
use orlop::view::{Kind, Labels, Picture};

use super::added_steps;
use crate::graph_file::GraphCase;

/// The picture of a graph's plan, with the ops and kinds of its file.
pub(super) fn picture(case: &GraphCase, plan: &MemoryPlan, title: &str) -> Picture {
    let step = |index: usize| match plan.usage.step(index).writes.first() {
        Some(value) => format!("{} {}", case.tags[value.index()].op, plan.usage.name(*value)),
        None => String::new(),
    };
    drawn(plan, title, &|value| case.tags[value.index()].kind, &step)
}

/// The picture of a plan with added steps.
pub(super) fn fitted_picture(case: &GraphCase, within: &PlanWithin) -> Picture {
    let plan = &within.plan;
    let tag = |value: ValueId| &case.tags[within.origins[value.index()].index()];
    let step = |index: usize| {
        let Some(value) = plan.usage.step(index).writes.first().copied() else { return String::new() };
        let name = plan.usage.name(value);
        match &within.steps[index] {
            FittedStep::Run(_) => format!("{} {name}", tag(value).op),
            FittedStep::Again(_) => format!("{} {name}, again", tag(value).op),
            copy => format!("{} {name}", added_steps::name(copy)),
        }
    };
    drawn(plan, &case.label, &|value| tag(value).kind, &step)
}

fn drawn(
    plan: &MemoryPlan,
    title: &str,
    kind: &dyn Fn(ValueId) -> Kind,
    step: &dyn Fn(usize) -> String,
) -> Picture {
    let arena = |arena: usize| plan.usage.arenas[arena].name.clone();
    Picture::of_plan(title, plan, &Labels { kind, step, device: &|_| None, arena: &arena, at: &[] })
}
