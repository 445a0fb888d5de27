//! Products on tensor cores take activations as halves, rounded once for all that read the same. Where nobody else reads
//! them, they are rounded as they are computed, and exist nowhere as they were.

use std::collections::HashMap;

use orlop_backend::{Step, Value};
use orlop_graph::{DType, TensorId};

use super::Draft;
use crate::kernels::{HALVES, Rounded, TILES, TileProduct, halves_bytes};

/// A value as halves.
struct Halves {
    x: TensorId,
    bfloat: bool,
    value: Value,
}

pub(super) fn share_halves(draft: &mut Draft<'_>) {
    let graph = draft.segment.graph;
    let sources = sources(draft);
    // What is rounded already, and has not been written since.
    let mut rounded: Vec<Halves> = Vec::new();
    let mut steps: Vec<Step> = Vec::with_capacity(draft.steps.len());
    for mut step in std::mem::take(&mut draft.steps) {
        if step.kernel == TILES
            && let Some(TileProduct { x, part }) = TileProduct::parse(graph, &step.nodes)
        {
            let bfloat = graph.tensor(part.matrix).desc.dtype == DType::BF16;
            let known = rounded.iter().find(|halves| halves.x == x && halves.bfloat == bfloat);
            let value = known.map(|halves| halves.value).unwrap_or_else(|| {
                let tensor = graph.tensor(x);
                let bytes = halves_bytes(tensor.desc.extents[0], tensor.desc.extents[1]).iter().sum();
                let value = draft.temporary(format!("{} in halves", tensor.name), bytes);
                // The step that computes the activations becomes the one that rounds them.
                let computed = sources.contains_key(&x).then(|| {
                    steps
                        .iter()
                        .rposition(|step| step.writes == [Value::Tensor(x)])
                        .map(|place| steps.remove(place))
                });
                let nodes = computed.flatten().map(|step| step.nodes).unwrap_or_default();
                let reads = Rounded::parse(graph, &nodes).unwrap_or(Rounded::Plain(x)).reads();
                steps.push(Step {
                    kernel: HALVES.into(),
                    nodes,
                    reads: reads.into_iter().chain([part.matrix]).map(Value::Tensor).collect(),
                    writes: vec![value],
                    may_overwrite: Vec::new(),
                });
                rounded.push(Halves { x, bfloat, value });
                value
            });
            let activations = step.reads.iter_mut().find(|read| **read == Value::Tensor(x));
            if let Some(read) = activations {
                *read = value;
            }
        }
        for root in draft.roots(&step.writes) {
            rounded.retain(|halves| draft.root(halves.x) != root);
        }
        steps.push(step);
    }
    draft.steps = steps;
}

/// Activations that only products on tensor cores read, all to the same halves and right behind the step that computes them,
/// which can round them itself.
fn sources(draft: &Draft<'_>) -> HashMap<TensorId, usize> {
    let graph = draft.segment.graph;
    let mut found = HashMap::new();
    if !draft.options.fusion {
        return found;
    }
    for (index, step) in draft.steps.iter().enumerate() {
        let [Value::Tensor(x)] = step.writes[..] else { continue };
        if draft.seen.contains(&x) || draft.root(x) != x || Rounded::parse(graph, &step.nodes).is_none() {
            continue;
        }
        let mut bfloats = Vec::new();
        let readers =
            draft.steps.iter().enumerate().filter(|(_, step)| draft.roots(&step.reads).contains(&x));
        let mut all = readers.peekable();
        let near = all.peek().is_some_and(|(reader, _)| *reader == index + 1);
        let tiles = all.all(|(_, step)| match TileProduct::parse(graph, &step.nodes) {
            Some(product) if step.kernel == TILES && product.x == x && product.part.sum != Some(x) => {
                bfloats.push(graph.tensor(product.part.matrix).desc.dtype == DType::BF16);
                true
            }
            _ => false,
        });
        if near && tiles && bfloats.windows(2).all(|pair| pair[0] == pair[1]) {
            found.insert(x, index);
        }
    }
    found
}
