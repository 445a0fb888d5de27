//! Steps that were added to meet a capacity.

use orlop::alloc::{AddedCost, FittedStep, PlanWithin, ValueId};
use serde::Serialize;

/// What added steps cost, for `--json`.
#[derive(Serialize)]
pub(super) struct AddedReport {
    /// Steps that run again.
    again: usize,
    again_seconds: f64,
    /// Copies to other memory and back.
    copies: usize,
    copied_bytes: u64,
    /// Seconds that steps wait for copies.
    wait_seconds: f64,
    /// Most bytes in other memory.
    other_bytes: u64,
    /// All added seconds.
    seconds: f64,
    /// Whether the choice is proven to be the cheapest.
    cheapest: bool,
}

impl AddedReport {
    pub(super) fn new(cost: &AddedCost) -> AddedReport {
        AddedReport {
            again: cost.again,
            again_seconds: cost.again_seconds,
            copies: cost.copies,
            copied_bytes: cost.copied_bytes,
            wait_seconds: cost.wait_seconds,
            other_bytes: cost.other_bytes,
            seconds: cost.seconds(),
            cheapest: cost.is_cheapest,
        }
    }
}

/// A step, for `--output`.
#[derive(Serialize)]
pub(super) struct PlacedStep {
    /// `run`, `again`, `spill` or `restore`.
    what: &'static str,
    /// The node that runs, by position in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<usize>,
    reads: Vec<usize>,
    writes: Vec<usize>,
}

/// All steps of a plan.
pub(super) fn placed_steps(within: &PlanWithin) -> Vec<PlacedStep> {
    let numbers = |ids: &[ValueId]| ids.iter().map(|id| id.index()).collect();
    let placed = |(what, step): (&FittedStep, orlop::alloc::StepView<'_>)| PlacedStep {
        what: name(what),
        node: match what {
            FittedStep::Run(node) | FittedStep::Again(node) => Some(*node),
            FittedStep::Spill(_) | FittedStep::Restore(_) => None,
        },
        reads: numbers(step.reads),
        writes: numbers(step.writes),
    };
    within.steps.iter().zip(within.plan.usage.steps()).map(placed).collect()
}

/// The name of a step's kind.
pub(super) fn name(step: &FittedStep) -> &'static str {
    match step {
        FittedStep::Run(_) => "run",
        FittedStep::Again(_) => "again",
        FittedStep::Spill(_) => "spill",
        FittedStep::Restore(_) => "restore",
    }
}
