//! Products on tensor cores take activations in fewer bits, rounded once for all that read the same. Where no other step
//! reads them, they are rounded as they are computed, and never stored in F32. Weights in a file's layout are dequantized
//! first.

use std::collections::HashSet;

use orlop_backend::{Step, StepEditor, StepValue};
use orlop_graph::{Graph, TensorId};

use super::in_planes;
use crate::kernels::{
    DEQUANTIZED, EIGHT_BIT, ExpertProducts, GROUPED, Part, Rounded, Rounding, Sorted, TILES, TileProduct,
    opened_bytes,
};

/// A value that was rounded for several products.
struct SharedRounding {
    x: TensorId,
    rounding: Rounding,
    value: StepValue,
}

/// The product that a step computes on tensor cores, and what it takes.
fn product(graph: &Graph, step: &Step) -> Option<(TileProduct, Rounding)> {
    let product = match &*step.kernel {
        TILES | EIGHT_BIT => TileProduct::parse(graph, &step.nodes)?,
        GROUPED => {
            let ExpertProducts { matrix, x, output, .. } = ExpertProducts::parse(graph, &step.nodes)?;
            TileProduct { x, part: Part { matrix, sum: None, output } }
        }
        _ => return None,
    };
    let matrix = graph.tensor(product.part.matrix).desc.dtype;
    Some((product, Rounding::of(&step.kernel, matrix)))
}

pub(super) fn share_rounded(editor: &mut StepEditor<'_>) {
    let graph = editor.segment.graph;
    let sources = sources(editor);
    // Values that were rounded and not written since.
    let mut rounded: Vec<SharedRounding> = Vec::new();
    let mut sorted: Vec<(TensorId, Sorted, StepValue)> = Vec::new();
    let mut steps: Vec<Step> = Vec::with_capacity(editor.steps.len());
    for mut step in std::mem::take(&mut editor.steps) {
        if let Some((TileProduct { x, part }, rounding)) = product(graph, &step) {
            let known = rounded.iter().find(|known| known.x == x && known.rounding == rounding);
            let value = known.map(|known| known.value).unwrap_or_else(|| {
                let tensor = graph.tensor(x);
                let bytes = rounding.bytes(tensor.desc.extents[0], tensor.desc.rows()).iter().sum();
                let value = editor.temporary(format!("{} in {}", tensor.name, rounding.words()), bytes);
                // The step that computes the activations becomes the one that rounds them.
                let computed = sources.contains(&x).then(|| {
                    steps
                        .iter()
                        .rposition(|step| step.writes == [StepValue::Tensor(x)])
                        .map(|place| steps.remove(place))
                });
                let nodes = computed.flatten().map(|step| step.nodes).unwrap_or_default();
                let reads = Rounded::parse(graph, &nodes).unwrap_or(Rounded::Plain(x)).reads();
                steps.push(Step {
                    kernel: rounding.kernel().into(),
                    nodes,
                    reads: reads.into_iter().chain([part.matrix]).map(StepValue::Tensor).collect(),
                    writes: vec![value],
                    may_overwrite: Vec::new(),
                });
                rounded.push(SharedRounding { x, rounding, value });
                value
            });
            let activations = step.reads.iter_mut().find(|read| **read == StepValue::Tensor(x));
            if let Some(read) = activations {
                *read = value;
            }
            if step.kernel == GROUPED {
                sort_tokens(editor, part.matrix, &mut step, &mut sorted, &mut steps);
            }
            dequantize_weights(editor, part.matrix, &mut step, &mut steps);
        }
        for root in editor.roots(&step.writes) {
            rounded.retain(|known| editor.root(known.x) != root);
            sorted.retain(|(ids, ..)| editor.root(*ids) != root);
        }
        steps.push(step);
    }
    editor.steps = steps;
}

/// Puts a step in front that brings tokens into the order of their experts, unless that was done for another product.
fn sort_tokens(
    editor: &mut StepEditor<'_>,
    matrix: TensorId,
    step: &mut Step,
    sorted: &mut Vec<(TensorId, Sorted, StepValue)>,
    steps: &mut Vec<Step>,
) {
    let graph = editor.segment.graph;
    let Some(ExpertProducts { ids, some, .. }) = ExpertProducts::parse(graph, &step.nodes) else { return };
    let order = Sorted::of(graph, ids, matrix, some);
    let known = sorted.iter().find(|(other, known, _)| *other == ids && *known == order);
    let value = known.map(|(.., value)| *value).unwrap_or_else(|| {
        let value = editor.temporary(format!("{} in order", graph.tensor(ids).name), order.bytes());
        steps.push(Step {
            kernel: order.kernel().into(),
            nodes: Vec::new(),
            reads: vec![StepValue::Tensor(ids), StepValue::Tensor(matrix)],
            writes: vec![value],
            may_overwrite: Vec::new(),
        });
        sorted.push((ids, order, value));
        value
    });
    step.reads.push(value);
}

/// Puts a step in front that dequantizes a product's weights, if they have a file's layout.
fn dequantize_weights(editor: &mut StepEditor<'_>, matrix: TensorId, step: &mut Step, steps: &mut Vec<Step>) {
    let tensor = editor.segment.graph.tensor(matrix);
    if !tensor.desc.dtype.is_quantized() || in_planes(editor, matrix) {
        return;
    }
    let value = editor.temporary(format!("{} in F16", tensor.name), opened_bytes(&tensor.desc));
    steps.push(Step {
        kernel: DEQUANTIZED.into(),
        nodes: Vec::new(),
        reads: vec![StepValue::Tensor(matrix)],
        writes: vec![value],
        may_overwrite: Vec::new(),
    });
    if let Some(read) = step.reads.iter_mut().find(|read| **read == StepValue::Tensor(matrix)) {
        *read = value;
    }
}

/// Activations that only products on tensor cores read, all rounded alike and right behind the step that computes them,
/// which can round them itself.
fn sources(editor: &StepEditor<'_>) -> HashSet<TensorId> {
    let graph = editor.segment.graph;
    let mut found = HashSet::new();
    if !editor.options.fusion {
        return found;
    }
    for (index, step) in editor.steps.iter().enumerate() {
        let [StepValue::Tensor(x)] = step.writes[..] else { continue };
        if editor.escapes(x) || editor.root(x) != x || Rounded::parse(graph, &step.nodes).is_none() {
            continue;
        }
        let mut roundings = Vec::new();
        let readers =
            editor.steps.iter().enumerate().filter(|(_, step)| editor.roots(&step.reads).contains(&x));
        let mut all = readers.peekable();
        let near = all.peek().is_some_and(|(reader, _)| *reader == index + 1);
        let alike = all.all(|(_, step)| match product(graph, step) {
            Some((product, rounding))
                if product.x == x && product.part.sum.is_none_or(|sum| editor.root(sum) != x) =>
            {
                roundings.push(rounding);
                true
            }
            _ => false,
        });
        if near && alike && roundings.windows(2).all(|pair| pair[0] == pair[1]) {
            found.insert(x);
        }
    }
    found
}
