//! How a segment becomes steps: one per node, then one rule after the other.
//!
//! A rule gives steps a kernel of their own, or lets a step do the work of others. What such a step touches follows from
//! its nodes, by the same function that its launches are made from (`parse`), so a rule says only which nodes go together.

mod experts;
mod fusion;
mod rounding;
#[cfg(test)]
mod tests;

use orlop_backend::{Device, DeviceError, LowerOptions, MemoryLayout, Precision, Segment, StepEditor, Steps};
use orlop_graph::TensorId;

use crate::kernels::{
    self, AttentionPlan, DECODE, EIGHT_BIT, EXPERTS, FLOATS, GROUPED, TILE_SHARED, TILES, VECTOR,
};

/// What a GPU has that kernels are chosen by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of shared memory of a thread block.
    pub(crate) shared: u32,
    /// Tensor cores take warp-group instructions (`wgmma`).
    pub(crate) warp_groups: bool,
}

/// A segment as a GPU runs it.
pub(crate) fn lower(
    device: &dyn Device,
    segment: &Segment<'_>,
    options: &LowerOptions,
    limits: Limits,
) -> Result<Steps, DeviceError> {
    segment.refuse_overlaps(device)?;
    let mut editor = StepEditor::new(device, segment, options)?;
    choose_products(&mut editor, limits);
    if options.fusion {
        fusion::fuse(&mut editor);
        experts::join(&mut editor);
    }
    choose_attention(&mut editor);
    rounding::share_rounded(&mut editor);
    Ok(editor.finish())
}

/// Whether a tensor lies in planes.
fn in_planes(editor: &StepEditor<'_>, id: TensorId) -> bool {
    let memory = editor.segment.buffer_types.get(id.index()).and_then(Option::as_ref);
    memory.is_some_and(|memory| memory.layout() == MemoryLayout::Private)
}

/// Products that have a kernel of their own get it.
fn choose_products(editor: &mut StepEditor<'_>, limits: Limits) {
    let tiles = limits.shared >= TILE_SHARED;
    let fast = editor.options.precision != Precision::F32;
    for index in 0..editor.steps.len() {
        let [id] = editor.steps[index].nodes[..] else { continue };
        let node = editor.segment.graph.node(id);
        let Some(first) = node.inputs.first() else { continue };
        let in_planes = in_planes(editor, *first);
        let graph = editor.segment.graph;
        if kernels::vector_takes(graph, node, in_planes) {
            editor.steps[index].kernel = VECTOR.into();
        } else if fast && limits.warp_groups && kernels::grouped_takes(graph, node, in_planes) {
            editor.steps[index].kernel = GROUPED.into();
        } else if kernels::experts_take(graph, node, in_planes) {
            editor.steps[index].kernel = EXPERTS.into();
        } else if fast && kernels::tiles_take(graph, node, in_planes) {
            let [matrix, x] = [node.inputs[0], node.inputs[1]].map(|id| &graph.tensor(id).desc);
            let int8 = kernels::suits_eight_bits(matrix.dtype, x.extents[1]);
            if int8 || (!tiles && matrix.dtype.is_quantized()) {
                editor.steps[index].kernel = EIGHT_BIT.into();
            } else if tiles {
                editor.steps[index].kernel = TILES.into();
            }
        } else if tiles && fast && kernels::opened_takes(graph, node, in_planes) {
            editor.steps[index].kernel = TILES.into();
        } else if kernels::floats_take(graph, node) {
            editor.steps[index].kernel = FLOATS.into();
        }
    }
}

/// Attention that has a kernel of its own gets it, and room for the results of its parts.
fn choose_attention(editor: &mut StepEditor<'_>) {
    for index in 0..editor.steps.len() {
        let step = &editor.steps[index];
        let Some(id) = step.nodes.last().filter(|_| step.nodes.len() == 1 || step.kernel == DECODE) else {
            continue;
        };
        let node = editor.segment.graph.node(*id);
        let plan = kernels::attention_plan(editor.segment.graph, node, editor.options.precision);
        let Some(AttentionPlan { kernel, scratch, .. }) = plan else { continue };
        editor.steps[index].kernel = kernel.into();
        if scratch > 0 {
            let name = format!("parts of {}", editor.segment.graph.tensor(node.output).name);
            let value = editor.temporary(name, scratch);
            editor.steps[index].writes.push(value);
        }
    }
}
