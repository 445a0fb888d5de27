//! Products with quantized weights take rounded activations, rounded once for all that read the same.

use std::collections::HashMap;

use orlop_backend::{Step, StepEditor, StepValue};
use orlop_graph::{Op, TensorId};

use crate::kernels::{PRODUCT, PRODUCT_ID, PRODUCTS, ROUND, Rounding, joins, takes_rounded};

/// Lets products with quantized weights read activations that a step before has rounded, unless all stay F32.
pub(super) fn share_rounded_activations(editor: &mut StepEditor<'_>) {
    let Some(rounding) = Rounding::with(editor.options.precision) else { return };
    let graph = editor.segment.graph;
    // What is rounded already, and has not been written since.
    let mut rounded: HashMap<TensorId, StepValue> = HashMap::new();
    let mut steps = Vec::with_capacity(editor.steps.len());
    for mut step in std::mem::take(&mut editor.steps) {
        if let Some(x) = rounded_operand(editor, &step) {
            let value = *rounded.entry(x).or_insert_with(|| {
                let tensor = graph.tensor(x);
                let name = rounding.kernel(&tensor.name);
                let value = editor.temporary(name, rounding.desc(&tensor.desc).bytes());
                steps.push(Step {
                    kernel: rounding.kernel(ROUND).into(),
                    nodes: Vec::new(),
                    reads: vec![StepValue::Tensor(x)],
                    writes: vec![value],
                    may_overwrite: Vec::new(),
                });
                value
            });
            step.reads[1] = value;
            let is_id = graph.node(step.nodes[0]).op != Op::MulMat;
            step.kernel = rounding.kernel(if is_id { PRODUCT_ID } else { PRODUCT }).into();
        }
        for write in &step.writes {
            if let StepValue::Tensor(id) = write {
                let root = editor.root(*id);
                rounded.retain(|x, _| editor.root(*x) != root);
            }
        }
        steps.push(step);
    }
    editor.steps = steps;
}

/// Lets neighbouring products of the same few activations be one step, so that all their weights are read in one go.
pub(super) fn join_products(editor: &mut StepEditor<'_>) {
    if !editor.options.fusion {
        return;
    }
    let graph = editor.segment.graph;
    let joined = |step: &Step| {
        let [node] = step.nodes[..] else { return None };
        let [weights, x] = graph.node(node).inputs[..] else { return None };
        let (PRODUCT, Some(rounding)) = Rounding::split(&step.kernel) else { return None };
        let joins = joins(&graph.tensor(weights).desc, &graph.tensor(x).desc);
        joins.then(|| (rounding, step.reads[1]))
    };
    let mut steps: Vec<Step> = Vec::with_capacity(editor.steps.len());
    // The activations of the last step, if others may join it.
    let mut last = None;
    for step in std::mem::take(&mut editor.steps) {
        let activations = joined(&step);
        match (steps.last_mut(), activations) {
            (Some(before), Some((rounding, _))) if activations == last => {
                before.kernel = rounding.kernel(PRODUCTS).into();
                before.nodes.extend(step.nodes);
                before.reads.push(step.reads[0]);
                before.writes.extend(step.writes);
                before.may_overwrite.clear();
            }
            _ => steps.push(step),
        }
        last = activations;
    }
    editor.steps = steps;
}

/// The activations of a product that takes them rounded.
fn rounded_operand(editor: &StepEditor<'_>, step: &Step) -> Option<TensorId> {
    let [node] = step.nodes[..] else { return None };
    let node = editor.segment.graph.node(node);
    if !matches!(node.op, Op::MulMat | Op::MulMatId | Op::MulMatSome) {
        return None;
    }
    let desc = |id: TensorId| &editor.segment.graph.tensor(id).desc;
    takes_rounded(desc(node.inputs[0]), desc(node.output)).then_some(node.inputs[1])
}
