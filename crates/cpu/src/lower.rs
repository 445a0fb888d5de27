//! How a segment becomes steps: one per node, then one rule after the other, then scratch.
//!
//! A rule looks at the steps so far and replaces some by steps whose kernel has a name in [`crate::kernels::named`].
//! The kernel defines what such a step touches (`StepKernel::operands`), so a rule says only which nodes go into it.

mod fusion;
mod rounded;

use std::collections::HashSet;

use orlop_backend::{
    Bindings, Device, DeviceError, LowerOptions, Segment, Slot, Step, StepEditor, StepValue, Steps,
};
use orlop_graph::{Graph, TensorDesc};

use crate::kernels::{self, SelectedKernel};
use crate::program::MAX_GROUP;
use crate::task::{FloatScratch, StepOperand, StepOperands, StepShape};

/// The rules, in the order in which they are tried.
const RULES: [fn(&mut StepEditor<'_>); 3] =
    [rounded::share_rounded_activations, fusion::fuse, rounded::join_products];

/// A segment as this device runs it. `options` are as the pool allows.
pub(crate) fn lower(
    device: &dyn Device,
    segment: &Segment<'_>,
    options: &LowerOptions,
) -> Result<Steps, DeviceError> {
    let mut editor = StepEditor::new(device, segment, options)?;
    for rule in RULES {
        rule(&mut editor);
    }
    add_scratch(&mut editor);
    Ok(editor.finish())
}

/// Adds scratch and shared rows to what steps write. Neighbours that are independent of each other share one scratch:
/// they can then run without a barrier in between, as each thread keeps to its own part.
fn add_scratch(editor: &mut StepEditor<'_>) {
    let graph = editor.segment.graph;
    let mut neighbours = Neighbours::default();
    for index in 0..editor.steps.len() {
        let Some((kernel, operands)) = kernels::of_step(graph, &editor.steps[index]) else { continue };
        let shape = shape(graph, &editor.steps[index], &operands);
        let needs = Needs::of(&kernel, &shape, editor.options.max_threads);
        let name = name(graph, &editor.steps[index]);
        if editor.options.max_threads == 1 || !neighbours.admit(editor, index) {
            neighbours = Neighbours::default();
            neighbours.admit(editor, index);
        }
        if needs.scratch_bytes > 0 {
            let known = neighbours.scratch;
            let value = known.unwrap_or_else(|| editor.temporary(format!("scratch of {name}"), 0));
            editor.grow(value, needs.scratch_bytes);
            editor.steps[index].writes.push(value);
            neighbours.scratch = Some(value);
        }
        if needs.shared_bytes > 0 {
            let value = editor.temporary(format!("shared of {name}"), needs.shared_bytes);
            editor.steps[index].writes.push(value);
        }
    }
}

/// Independent steps: none touches what another writes.
#[derive(Default)]
struct Neighbours {
    reads: HashSet<StepValue>,
    writes: HashSet<StepValue>,
    steps: usize,
    /// Their scratch.
    scratch: Option<StepValue>,
}

impl Neighbours {
    /// Takes a step in, if it is independent of the others.
    fn admit(&mut self, editor: &StepEditor<'_>, index: usize) -> bool {
        let root = |value: &StepValue| match value {
            StepValue::Tensor(id) => StepValue::Tensor(editor.root(*id)),
            other => *other,
        };
        let step = &editor.steps[index];
        let reads: Vec<StepValue> = step.reads.iter().map(root).collect();
        let writes: Vec<StepValue> = step.writes.iter().map(root).collect();
        let apart = self.steps < MAX_GROUP
            && !writes.iter().any(|value| self.reads.contains(value) || self.writes.contains(value))
            && !reads.iter().any(|value| self.writes.contains(value));
        if apart {
            self.steps += 1;
            self.reads.extend(reads);
            self.writes.extend(writes);
        }
        apart
    }
}

/// The name of a step's result.
pub(crate) fn name(graph: &Graph, step: &Step) -> String {
    match (step.nodes.last(), step.reads.first()) {
        (Some(node), _) => graph.tensor(graph.node(*node).output).name.clone(),
        (None, Some(StepValue::Tensor(id))) => graph.tensor(*id).name.clone(),
        _ => String::new(),
    }
}

/// Descriptions of what a step touches.
pub(crate) fn shape<'a>(graph: &'a Graph, step: &Step, operands: &StepOperands) -> StepShape<'a> {
    let descs = |operands: &[StepOperand]| operands.iter().map(|operand| desc(graph, *operand)).collect();
    StepShape {
        ops: step.nodes.iter().map(|node| &graph.node(*node).op).collect(),
        reads: descs(&operands.reads),
        writes: descs(&operands.writes),
    }
}

/// The description of what an operand is in memory.
pub(crate) fn desc(graph: &Graph, operand: StepOperand) -> TensorDesc {
    match operand {
        StepOperand::Tensor(id) => graph.tensor(id).desc,
        StepOperand::Rounded(id, rounding) => rounding.desc(&graph.tensor(id).desc),
    }
}

/// The place of what an operand is in memory, if `value`, which a step names there, is of that kind.
pub(crate) fn slot(
    bindings: &Bindings,
    operand: StepOperand,
    value: StepValue,
) -> Result<Option<&Slot>, DeviceError> {
    let same = match (operand, value) {
        (StepOperand::Tensor(id), StepValue::Tensor(named)) => id == named,
        (StepOperand::Rounded(..), StepValue::Temporary(_)) => true,
        _ => false,
    };
    if same { bindings.slot(value).map(Some) } else { Ok(None) }
}

/// Temporary memory of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Whole cache lines for each thread, so that no two share any.
    pub(crate) scratch_bytes: u64,
    pub(crate) shared: (u64, u64),
    pub(crate) shared_bytes: u64,
}

impl Needs {
    pub(crate) fn of(kernel: &SelectedKernel, shape: &StepShape<'_>, threads: usize) -> Needs {
        let FloatScratch { scratch, shared } = kernel.needs(shape);
        let per_thread = scratch.saturating_mul(4).checked_next_multiple_of(64).unwrap_or(u64::MAX - 63);
        Needs {
            scratch_bytes: per_thread.saturating_mul(threads as u64),
            shared,
            shared_bytes: shared.0.saturating_mul(shared.1).saturating_mul(4),
        }
    }
}
