//! Experts: the router's steps become one, and so do the products of a token with its experts' matrices and what follows
//! them.

use orlop_backend::{Step, StepEditor, StepValue};
use orlop_graph::{NodeId, TensorId};

use super::fusion::overwrites;
use crate::kernels::{EXPERTS, ExpertProducts, FLOATS, MIX, Mixture, ROUTE, Routing};

/// What a row of steps touches as one step.
struct Joined {
    kernel: &'static str,
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
    /// What its only result may take the place of.
    replaced: Option<TensorId>,
}

pub(super) fn join(editor: &mut StepEditor<'_>) {
    let mut index = 0;
    while index < editor.steps.len() {
        // The longest row that one kernel takes: a router has at most 8 steps, a mixture one more than a token has experts.
        let most = (editor.steps.len() - index).min(34);
        let found = (2..=most).rev().find_map(|count| {
            let joined = joined(editor, index, count)?;
            is_closed(editor, index, count, &joined).then_some((count, joined))
        });
        if let Some((count, Joined { kernel, reads, writes, replaced })) = found {
            let nodes = nodes_of(&editor.steps[index..index + count]);
            let may_overwrite = replaced.map_or_else(Vec::new, |id| overwrites(editor, id, &reads, &writes));
            let values = |ids: Vec<TensorId>| ids.into_iter().map(StepValue::Tensor).collect();
            let step = Step {
                kernel: kernel.into(),
                nodes,
                reads: values(reads),
                writes: values(writes),
                may_overwrite,
            };
            editor.steps.splice(index..index + count, [step]);
        }
        index += 1;
    }
}

fn nodes_of(steps: &[Step]) -> Vec<NodeId> {
    steps.iter().flat_map(|step| step.nodes.iter().copied()).collect()
}

/// What steps become together, if a kernel takes them.
fn joined(editor: &StepEditor<'_>, index: usize, count: usize) -> Option<Joined> {
    let (graph, steps) = (editor.segment.graph, &editor.steps[index..index + count]);
    let plain = |steps: &[Step], names: &[&str]| steps.iter().all(|step| names.contains(&&*step.kernel));
    match &*steps[0].kernel {
        "mul_mat" | FLOATS | "soft_max" => {
            let routing = Routing::parse(graph, &nodes_of(steps))?;
            let writes = vec![routing.ids, routing.weights];
            Some(Joined { kernel: ROUTE, reads: routing.reads(), writes, replaced: None })
        }
        EXPERTS => {
            if !plain(
                &steps[1..],
                &[EXPERTS, "reglu", "geglu", "geglu_erf", "geglu_quick", "swiglu", "mul", "add"],
            ) {
                return None;
            }
            let products = ExpertProducts::parse(graph, &nodes_of(steps))?;
            let replaced = products.mixture.and_then(|mixture| mixture.sum);
            let writes = vec![products.output];
            Some(Joined { kernel: EXPERTS, reads: products.reads(), writes, replaced })
        }
        "mul" => {
            let mixture = Mixture::parse(graph, &nodes_of(steps))?;
            let writes = vec![mixture.output];
            Some(Joined { kernel: MIX, reads: mixture.reads(), writes, replaced: mixture.sum })
        }
        _ => None,
    }
}

/// Whether nothing but these steps needs what they no longer store, and the result's memory is not read on the way.
fn is_closed(editor: &StepEditor<'_>, index: usize, count: usize, joined: &Joined) -> bool {
    let steps = &editor.steps[index..index + count];
    let kept: Vec<TensorId> = joined.writes.iter().map(|id| editor.root(*id)).collect();
    let stored: Vec<TensorId> = steps.iter().flat_map(|step| editor.roots(&step.writes)).collect();
    let gone: Vec<TensorId> = stored.into_iter().filter(|root| !kept.contains(root)).collect();
    let others = editor.steps.iter().enumerate().filter(|(other, _)| !(index..index + count).contains(other));
    let read: Vec<TensorId> = others.flat_map(|(_, step)| editor.roots(&step.reads)).collect();
    gone.iter().all(|root| !editor.escapes(*root) && !read.contains(root))
        && joined.reads.iter().all(|read| !gone.contains(&editor.root(*read)))
}
