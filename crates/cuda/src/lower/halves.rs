//! Products on tensor cores take activations as halves, rounded once for all that read the same.

use std::collections::HashMap;

use orlop_backend::{Step, Value};
use orlop_graph::{DType, TensorId};

use super::Draft;
use crate::kernels::{HALVES, TILES, TileProduct, halves_bytes, halves_reads};

pub(super) fn share_halves(draft: &mut Draft<'_>) {
    let graph = draft.segment.graph;
    // What is rounded already, to which halves, and has not been written since.
    let mut rounded: HashMap<(TensorId, bool), Value> = HashMap::new();
    let mut steps = Vec::with_capacity(draft.steps.len());
    for mut step in std::mem::take(&mut draft.steps) {
        if step.kernel == TILES
            && let Some(TileProduct { x, part }) = TileProduct::parse(graph, &step.nodes)
        {
            let key = (x, graph.tensor(part.matrix).desc.dtype == DType::BF16);
            let value = *rounded.entry(key).or_insert_with(|| {
                let tensor = graph.tensor(x);
                let bytes = halves_bytes(tensor.desc.extents[0], tensor.desc.extents[1]).iter().sum();
                let value = draft.temporary(format!("{} in halves", tensor.name), bytes);
                steps.push(Step {
                    kernel: HALVES.into(),
                    nodes: Vec::new(),
                    reads: halves_reads(x, part.matrix),
                    writes: vec![value],
                    may_overwrite: Vec::new(),
                });
                value
            });
            let activations = step.reads.iter_mut().find(|read| **read == Value::Tensor(x));
            if let Some(read) = activations {
                *read = value;
            }
        }
        for root in draft.roots(&step.writes) {
            rounded.retain(|(x, _), _| draft.root(*x) != root);
        }
        steps.push(step);
    }
    draft.steps = steps;
}
