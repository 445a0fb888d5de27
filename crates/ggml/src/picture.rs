//! A page that compares a plan with ggml's own.

use orlop_alloc::{MemoryPlan, ValueId};
use orlop_view::{Error, Kind, Labels, Picture, page_beside};

use crate::plan_json::PlanJson;

/// Both plans side by side.
pub(crate) fn page(json: &PlanJson, own: &MemoryPlan, theirs: &MemoryPlan) -> Result<String, Error> {
    let of = |title: &str, plan| picture(json, plan, &format!("{}, by {title}", json.label));
    page_beside(&of("ggml", theirs), &of("Orlop", own))
}

fn picture(json: &PlanJson, plan: &MemoryPlan, title: &str) -> Picture {
    let usage = &plan.usage;
    let kind = |value: ValueId| match usage.value(value).flags {
        flags if flags.input => Kind::Input,
        _ if json.is_copy(value.index()) => Kind::Copy,
        _ => Kind::Activation,
    };
    let step = |index: usize| match usage.step(index).writes.first() {
        Some(value) => format!("{} {}", json.op(value.index()), usage.name(*value)),
        None => String::new(),
    };
    let labels = Labels {
        kind: &kind,
        step: &step,
        device: &|_| None,
        arena: &|arena| usage.arenas[arena].name.clone(),
        at: &[],
    };
    Picture::of_plan(title, plan, &labels)
}
