//! Products with quantized weights take int8 activations, rounded once for all that read the same.

use std::collections::{HashMap, HashSet};

use orlop_backend::{Precision, Step, StepEditor, StepValue};
use orlop_graph::{Op, TensorId};

use crate::kernels::{
    EIGHT_BIT_PRODUCT, EIGHT_BIT_PRODUCT_ID, EIGHT_BIT_PRODUCTS, ROUND, ROUND_JOINTLY, eight_bit_desc, joins,
    takes_eight_bits, takes_joint,
};

/// Lets products with quantized weights read activations that a step before has rounded, unless all stay F32.
pub(super) fn share_rounded_activations(editor: &mut StepEditor<'_>) {
    if editor.options.precision == Precision::F32 {
        return;
    }
    let graph = editor.segment.graph;
    // Where one product wants its activations to share scales, all that read them can do with that.
    let products = editor.steps.iter().filter_map(|step| product(editor, step));
    let joint: HashSet<TensorId> =
        products.filter(|product| product.joint).map(|product| product.x).collect();
    // What is rounded already, and has not been written since.
    let mut rounded: HashMap<TensorId, StepValue> = HashMap::new();
    let mut steps = Vec::with_capacity(editor.steps.len());
    for mut step in std::mem::take(&mut editor.steps) {
        if let Some(Product { x, .. }) = product(editor, &step) {
            let value = *rounded.entry(x).or_insert_with(|| {
                let tensor = graph.tensor(x);
                let value = editor
                    .temporary(format!("{} in 8 bits", tensor.name), eight_bit_desc(&tensor.desc).bytes());
                steps.push(Step {
                    kernel: if joint.contains(&x) { ROUND_JOINTLY } else { ROUND }.into(),
                    nodes: Vec::new(),
                    reads: vec![StepValue::Tensor(x)],
                    writes: vec![value],
                    may_overwrite: Vec::new(),
                });
                value
            });
            step.reads[1] = value;
            let is_id = graph.node(step.nodes[0]).op == Op::MulMatId;
            step.kernel = if is_id { EIGHT_BIT_PRODUCT_ID } else { EIGHT_BIT_PRODUCT }.into();
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
        let joins =
            step.kernel == EIGHT_BIT_PRODUCT && joins(&graph.tensor(weights).desc, &graph.tensor(x).desc);
        joins.then(|| step.reads[1])
    };
    let mut steps: Vec<Step> = Vec::with_capacity(editor.steps.len());
    // The activations of the last step, if others may join it.
    let mut last = None;
    for step in std::mem::take(&mut editor.steps) {
        let activations = joined(&step);
        match steps.last_mut() {
            Some(before) if activations.is_some() && activations == last => {
                before.kernel = EIGHT_BIT_PRODUCTS.into();
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

/// A product that takes activations in 8 bits.
struct Product {
    x: TensorId,
    /// Whether it wants them to share scales.
    joint: bool,
}

fn product(editor: &StepEditor<'_>, step: &Step) -> Option<Product> {
    let [node] = step.nodes[..] else { return None };
    let node = editor.segment.graph.node(node);
    if !matches!(node.op, Op::MulMat | Op::MulMatId) {
        return None;
    }
    let desc = |id: TensorId| &editor.segment.graph.tensor(id).desc;
    let (weights, x) = (desc(node.inputs[0]), node.inputs[1]);
    let joint = takes_joint(weights, desc(x));
    takes_eight_bits(weights, desc(node.output)).then_some(Product { x, joint })
}
