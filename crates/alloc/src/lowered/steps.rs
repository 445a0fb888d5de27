//! The check of steps that a device made.

use orlop_backend::{Overwrite, StepValue, Steps, Temporary};
use orlop_graph::{Graph, may_overwrite};

use crate::Error;

/// Steps come from a device: whatever they refer to must be there.
pub(super) fn check_steps(graph: &Graph, steps: &Steps) -> Result<(), Error> {
    let bad = |what: String| Err(Error::BadLowering { what });
    for (index, step) in steps.steps.iter().enumerate() {
        for value in step.reads.iter().chain(&step.writes) {
            let known = match value {
                StepValue::Tensor(id) => graph.get(*id).is_some(),
                StepValue::Temporary(number) => *number < steps.temporaries.len(),
            };
            if !known {
                return bad(format!("step {index} with {value:?}, which is not there"));
            }
        }
    }
    for (index, step) in steps.steps.iter().enumerate() {
        for pair in &step.may_overwrite {
            if pair.write >= step.writes.len() || pair.read >= step.reads.len() {
                return bad(format!("step {index}, which offers to overwrite what it does not have"));
            }
        }
        // Of a step that is one node, the graph knows what it may overwrite at most.
        if let [node] = step.nodes[..]
            && let Some(node) = graph.nodes().get(node.index())
        {
            let forbidden = |pair: &Overwrite| {
                step.writes[pair.write] == StepValue::Tensor(node.output)
                    && matches!(step.reads[pair.read], StepValue::Tensor(id)
                        if !node.inputs.iter().enumerate().any(|(slot, input)| *input == id && may_overwrite(&node.op, slot)))
            };
            if step.may_overwrite.iter().any(forbidden) {
                return bad(format!("step {index}, which offers to overwrite what {} may not", node.op));
            }
        }
    }
    for temporary in &steps.temporaries {
        if temporary.first > temporary.last || temporary.last >= steps.steps.len() {
            let Temporary { name, first, last, .. } = temporary;
            return bad(format!("`{name}` from step {first} to {last} of {}", steps.steps.len()));
        }
    }
    Ok(())
}
