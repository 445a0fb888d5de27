//! How a segment becomes steps: one a node, then one rule after the other, then scratch.
//!
//! A rule looks at the steps so far and replaces some, by ones whose kernel has a name in [`crate::kernels::named`].
//! What such a step touches is the kernel's word ([`StepKernel::operands`]), so a rule says only which nodes go into
//! it. Temporaries live from the first step that touches them to the last.

mod eight_bit;
mod fusion;

use std::collections::HashSet;

use orlop_backend::{Bindings, Device, DeviceError, LowerOptions, Segment, Slot, Step, StepValue, Steps};
use orlop_graph::{Graph, TensorDesc, TensorId};

use crate::kernels::{self, SelectedKernel};
use crate::program::MAX_GROUP;
use crate::task::{FloatScratch, Operand, Operands, Shape};

/// The rules, in the order in which they are tried.
const RULES: [fn(&mut Draft<'_>); 3] =
    [eight_bit::share_rounded_activations, fusion::fuse, eight_bit::join_products];

/// Steps in the making.
pub(crate) struct Draft<'a> {
    pub(crate) segment: &'a Segment<'a>,
    pub(crate) options: &'a LowerOptions,
    pub(crate) steps: Vec<Step>,
    /// Names and bytes of temporaries.
    pub(crate) temporaries: Vec<(String, u64)>,
}

impl Draft<'_> {
    /// A new temporary.
    pub(crate) fn temporary(&mut self, name: String, bytes: u64) -> StepValue {
        self.temporaries.push((name, bytes));
        StepValue::Temporary(self.temporaries.len() - 1)
    }

    /// The storage that a tensor lies in.
    pub(crate) fn root(&self, id: TensorId) -> TensorId {
        self.segment.graph.tensor(id).storage.root
    }
}

/// A segment as this device runs it. `options` are as the pool allows.
pub(crate) fn lower(
    device: &dyn Device,
    segment: &Segment<'_>,
    options: &LowerOptions,
) -> Result<Steps, DeviceError> {
    let Steps { steps, .. } = segment.one_step_per_node(device, options)?;
    let mut draft = Draft { segment, options, steps, temporaries: Vec::new() };
    for rule in RULES {
        rule(&mut draft);
    }
    add_scratch(&mut draft);
    Ok(Steps::new(draft.options.clone(), draft.steps, draft.temporaries))
}

/// Adds scratch and shared rows to what steps write. Neighbours that have nothing to do with one another get one
/// scratch: they can then run without threads meeting in between, as each thread keeps to its own part.
fn add_scratch(draft: &mut Draft<'_>) {
    let graph = draft.segment.graph;
    let mut neighbours = Neighbours::default();
    for index in 0..draft.steps.len() {
        let Some((kernel, operands)) = kernels::of_step(graph, &draft.steps[index]) else { continue };
        let shape = shape(graph, &draft.steps[index], &operands);
        let needs = Needs::of(&kernel, &shape, draft.options.max_threads);
        let name = name(graph, &draft.steps[index]);
        if draft.options.max_threads == 1 || !neighbours.admit(draft, index) {
            neighbours = Neighbours::default();
            neighbours.admit(draft, index);
        }
        if needs.scratch_bytes > 0 {
            let known = neighbours.scratch.take();
            let number = known.unwrap_or_else(|| {
                draft.temporary(format!("scratch of {name}"), 0);
                draft.temporaries.len() - 1
            });
            let bytes = &mut draft.temporaries[number].1;
            *bytes = needs.scratch_bytes.max(*bytes);
            draft.steps[index].writes.push(StepValue::Temporary(number));
            neighbours.scratch = Some(number);
        }
        if needs.shared_bytes > 0 {
            let value = draft.temporary(format!("shared of {name}"), needs.shared_bytes);
            draft.steps[index].writes.push(value);
        }
    }
}

/// Steps none of which touches what another writes.
#[derive(Default)]
struct Neighbours {
    reads: HashSet<StepValue>,
    writes: HashSet<StepValue>,
    steps: usize,
    /// The temporary that is their scratch.
    scratch: Option<usize>,
}

impl Neighbours {
    /// Takes a step in, if it is such a one.
    fn admit(&mut self, draft: &Draft<'_>, index: usize) -> bool {
        let root = |value: &StepValue| match value {
            StepValue::Tensor(id) => StepValue::Tensor(draft.root(*id)),
            other => *other,
        };
        let step = &draft.steps[index];
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
pub(crate) fn shape<'a>(graph: &'a Graph, step: &Step, operands: &Operands) -> Shape<'a> {
    let descs = |operands: &[Operand]| operands.iter().map(|operand| desc(graph, *operand)).collect();
    Shape {
        ops: step.nodes.iter().map(|node| &graph.node(*node).op).collect(),
        reads: descs(&operands.reads),
        writes: descs(&operands.writes),
    }
}

/// The description of what an operand is in memory.
pub(crate) fn desc(graph: &Graph, operand: Operand) -> TensorDesc {
    match operand {
        Operand::Tensor(id) => graph.tensor(id).desc,
        Operand::EightBit(id) => kernels::eight_bit_desc(&graph.tensor(id).desc),
    }
}

/// The place of what an operand is in memory, if `value`, which a step names there, is of that kind.
pub(crate) fn slot(
    bindings: &Bindings,
    operand: Operand,
    value: StepValue,
) -> Result<Option<&Slot>, DeviceError> {
    let same = match (operand, value) {
        (Operand::Tensor(id), StepValue::Tensor(named)) => id == named,
        (Operand::EightBit(_), StepValue::Temporary(_)) => true,
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
    pub(crate) fn of(kernel: &SelectedKernel, shape: &Shape<'_>, threads: usize) -> Needs {
        let FloatScratch { scratch, shared } = kernel.needs(shape);
        let per_thread = scratch.saturating_mul(4).checked_next_multiple_of(64).unwrap_or(u64::MAX - 63);
        Needs {
            scratch_bytes: per_thread.saturating_mul(threads as u64),
            shared,
            shared_bytes: shared.0.saturating_mul(shared.1).saturating_mul(4),
        }
    }
}
