//! How a segment becomes steps: one a node, then one rule after the other.
//!
//! A rule gives steps a kernel of their own, or lets a step do the work of others. What such a step touches follows from
//! its nodes, by the same function that its launches are made from (`parse`), so a rule says only which nodes go together.

mod fusion;
mod rounding;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use orlop_backend::{
    Device, DeviceError, LowerOptions, MemoryLayout, Precision, Segment, Step, StepValue, Steps,
};
use orlop_graph::{Node, NodeId, TensorId};

use crate::kernels::{self, AttentionPlan, DECODE, EIGHT_BIT, EXPERTS, TILE_SHARED, TILES, VECTOR};

/// Steps in the making.
pub(crate) struct Draft<'a> {
    pub(crate) segment: &'a Segment<'a>,
    pub(crate) options: &'a LowerOptions,
    pub(crate) steps: Vec<Step>,
    /// Names and bytes of temporaries.
    pub(crate) temporaries: Vec<(String, u64)>,
    /// Storage that somebody else reads some of.
    seen: HashSet<TensorId>,
}

/// A segment as a card runs it whose blocks have so many bytes of shared memory.
pub(crate) fn lower(
    device: &dyn Device,
    segment: &Segment<'_>,
    options: &LowerOptions,
    shared: u32,
) -> Result<Steps, DeviceError> {
    segment.refuse_overlaps(device)?;
    let Steps { steps, .. } = segment.one_step_per_node(device, options)?;
    let graph = segment.graph;
    let seen = graph.tensor_ids().filter(|id| segment.escapes.get(id.index()).copied().unwrap_or(true));
    let seen = seen.map(|id| graph.tensor(id).storage.root).collect();
    let mut draft = Draft { segment, options, steps, temporaries: Vec::new(), seen };
    choose_products(&mut draft, shared >= TILE_SHARED);
    if options.fusion {
        fusion::fuse(&mut draft);
    }
    choose_attention(&mut draft);
    rounding::share_rounded(&mut draft);
    Ok(Steps::new(draft.options.clone(), draft.steps, draft.temporaries))
}

impl<'a> Draft<'a> {
    /// A new temporary.
    fn temporary(&mut self, name: String, bytes: u64) -> StepValue {
        self.temporaries.push((name, bytes));
        StepValue::Temporary(self.temporaries.len() - 1)
    }

    fn root(&self, id: TensorId) -> TensorId {
        self.segment.graph.tensor(id).storage.root
    }

    fn node(&self, id: NodeId) -> &'a Node {
        self.segment.graph.node(id)
    }

    fn name(&self, id: TensorId) -> &'a str {
        &self.segment.graph.tensor(id).name
    }

    fn in_planes(&self, id: TensorId) -> bool {
        let memory = self.segment.buffer_types.get(id.index()).and_then(Option::as_ref);
        memory.is_some_and(|memory| memory.layout() == MemoryLayout::Private)
    }

    /// The storage of tensors among values.
    fn roots(&self, values: &[StepValue]) -> Vec<TensorId> {
        let root = |value: &StepValue| match value {
            StepValue::Tensor(id) => Some(self.root(*id)),
            StepValue::Temporary(_) => None,
        };
        values.iter().filter_map(root).collect()
    }
}

/// Products that have a kernel of their own get it; `tiles` says whether blocks have room for tiles of halves.
fn choose_products(draft: &mut Draft<'_>, tiles: bool) {
    let fast = draft.options.precision == Precision::Fast;
    for index in 0..draft.steps.len() {
        let [id] = draft.steps[index].nodes[..] else { continue };
        let node = draft.node(id);
        let Some(first) = node.inputs.first() else { continue };
        let in_planes = draft.in_planes(*first);
        let graph = draft.segment.graph;
        if kernels::vector_takes(graph, node, in_planes) {
            draft.steps[index].kernel = VECTOR.into();
        } else if kernels::experts_take(graph, node, in_planes) {
            draft.steps[index].kernel = EXPERTS.into();
        } else if fast && kernels::tiles_take(graph, node, in_planes) {
            let [matrix, x] = [node.inputs[0], node.inputs[1]].map(|id| &graph.tensor(id).desc);
            let eights = kernels::suits_eight_bits(matrix.dtype, x.extents[1]);
            if eights || (!tiles && matrix.dtype.is_quantized()) {
                draft.steps[index].kernel = EIGHT_BIT.into();
            } else if tiles {
                draft.steps[index].kernel = TILES.into();
            }
        } else if tiles && fast && kernels::opened_takes(graph, node, in_planes) {
            draft.steps[index].kernel = TILES.into();
        }
    }
}

/// Attention that has a kernel of its own gets it, and room for the results of its parts.
fn choose_attention(draft: &mut Draft<'_>) {
    for index in 0..draft.steps.len() {
        let step = &draft.steps[index];
        let Some(id) = step.nodes.last().filter(|_| step.nodes.len() == 1 || step.kernel == DECODE) else {
            continue;
        };
        let node = draft.node(*id);
        let plan = kernels::attention_plan(draft.segment.graph, node, draft.options.precision);
        let Some(AttentionPlan { kernel, scratch, .. }) = plan else { continue };
        draft.steps[index].kernel = kernel.into();
        if scratch > 0 {
            let name = format!("parts of {}", draft.name(node.output));
            let value = draft.temporary(name, scratch);
            draft.steps[index].writes.push(value);
        }
    }
}
