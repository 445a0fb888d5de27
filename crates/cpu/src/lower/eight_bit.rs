//! Products with quantised weights take activations in 8 bits, rounded once for all that read the same.

use std::collections::HashMap;

use orlop_backend::{Precision, Step, Value};
use orlop_graph::{Op, TensorId};

use super::Draft;
use crate::kernels::{EIGHT_BIT_PRODUCT, EIGHT_BIT_PRODUCT_ID, ROUND, eight_bit_desc, takes_eight_bits};

/// Lets products with quantised weights read activations that a step before has rounded, unless all is to stay F32.
pub(super) fn share_rounded_activations(draft: &mut Draft<'_>) {
    if draft.options.precision == Precision::F32 {
        return;
    }
    let graph = draft.segment.graph;
    // What is rounded already, and has not been written since.
    let mut rounded: HashMap<TensorId, Value> = HashMap::new();
    let mut steps = Vec::with_capacity(draft.steps.len());
    for mut step in std::mem::take(&mut draft.steps) {
        if let Some(x) = activations(draft, &step) {
            let value = *rounded.entry(x).or_insert_with(|| {
                let tensor = graph.tensor(x);
                let value = draft
                    .temporary(format!("{} in 8 bits", tensor.name), eight_bit_desc(&tensor.desc).bytes());
                steps.push(Step {
                    kernel: ROUND.into(),
                    nodes: Vec::new(),
                    reads: vec![Value::Tensor(x)],
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
            if let Value::Tensor(id) = write {
                let root = draft.root(*id);
                rounded.retain(|x, _| draft.root(*x) != root);
            }
        }
        steps.push(step);
    }
    draft.steps = steps;
}

/// The activations of a product that takes them in 8 bits.
fn activations(draft: &Draft<'_>, step: &Step) -> Option<TensorId> {
    let [node] = step.nodes[..] else { return None };
    let node = draft.segment.graph.node(node);
    if !matches!(node.op, Op::MulMat | Op::MulMatId) {
        return None;
    }
    let desc = |id: TensorId| &draft.segment.graph.tensor(id).desc;
    takes_eight_bits(desc(node.inputs[0]), desc(node.output)).then(|| node.inputs[1])
}
