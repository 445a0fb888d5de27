//! Estimated times of the steps of a graph: by operations and bytes, on a GPU of the middle class with PCIe 4.0 to the host.

use orlop::alloc::{StepFacts, Usage};
use orlop::graph::{Graph, Origin, TensorId};

use super::line::{Line, Tensor};

const OPERATIONS_PER_SECOND: f64 = 20e12;
const BYTES_PER_SECOND: f64 = 500e9;
const LAUNCH_SECONDS: f64 = 3e-6;
/// To the memory of the host, and back.
const COPY_BYTES_PER_SECOND: f64 = 24e9;

/// Nodes that compute nothing.
const VIEWS: [&str; 5] = ["NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"];

/// The facts of a ggml graph, whose steps are its nodes.
pub(super) fn of_line(line: &Line<'_>) -> StepFacts {
    let nodes = || line.nodes.iter().map(|(tensor, _)| &line.tensors[*tensor]);
    StepFacts {
        seconds: nodes().map(|node| node_seconds(line, node)).collect(),
        only_views: nodes().map(|node| VIEWS.contains(&node.op.as_ref())).collect(),
        copy_bytes_per_second: COPY_BYTES_PER_SECOND,
    }
}

/// The facts of an Orlop graph, whose values are its tensors.
pub(super) fn of_graph(graph: &Graph, usage: &Usage) -> StepFacts {
    let bytes = |id: &TensorId| graph.tensor(*id).desc.bytes() as f64;
    let ids: Vec<TensorId> = graph.tensor_ids().collect();
    let node = |value: usize| match graph.tensor(ids[value]).origin {
        Origin::Node(node) => Some(node),
        Origin::Leaf(_) => None,
    };
    let seconds = usage.steps().map(|step| {
        let Some(id) = step.writes.first().and_then(|value| node(value.index())) else { return 0.0 };
        let node = graph.node(id);
        let moved = node.inputs.iter().map(bytes).sum::<f64>() + bytes(&node.output);
        roofline(graph.operations(id), moved)
    });
    StepFacts {
        seconds: seconds.collect(),
        only_views: vec![false; usage.step_count()],
        copy_bytes_per_second: COPY_BYTES_PER_SECOND,
    }
}

/// The start of a kernel, and the slower of arithmetic and memory.
fn roofline(operations: f64, bytes: f64) -> f64 {
    LAUNCH_SECONDS + (operations / OPERATIONS_PER_SECOND).max(bytes / BYTES_PER_SECOND)
}

fn node_seconds(line: &Line<'_>, node: &Tensor<'_>) -> f64 {
    if VIEWS.contains(&node.op.as_ref()) {
        return 0.0;
    }
    roofline(operations(line, node), moved_bytes(line, node))
}

fn moved_bytes(line: &Line<'_>, node: &Tensor<'_>) -> f64 {
    let result = node.bytes as f64;
    let sources = node.src.iter().map(|source| line.tensors[*source].bytes as f64);
    match node.op.as_ref() {
        // Reads as many rows as it writes.
        "GET_ROWS" => 2.0 * result,
        // Writes as many rows as it reads.
        "SET_ROWS" => 2.0 * sources.take(1).sum::<f64>(),
        _ => sources.sum::<f64>() + result,
    }
}

/// Multiplications and additions; one per element of the result for ops that are bound by memory.
fn operations(line: &Line<'_>, node: &Tensor<'_>) -> f64 {
    let product = |extents: &[u64]| extents.iter().map(|extent| *extent as f64).product::<f64>();
    let source = |index: usize| node.src.get(index).map_or([0; 4], |source| line.tensors[*source].ne);
    let results = product(&node.ne);
    match node.op.as_ref() {
        "MUL_MAT" | "MUL_MAT_ID" => 2.0 * source(0)[0] as f64 * results,
        "OUT_PROD" => 2.0 * source(0)[1] as f64 * results,
        // A kernel is [width, height, channels, results].
        "CONV_2D" => 2.0 * product(&source(0)[..3]) * results,
        "CONV_2D_DW" => 2.0 * product(&source(0)[..2]) * results,
        // A kernel is [width, height, results, channels].
        "CONV_TRANSPOSE_2D" => 2.0 * product(&source(0)[..3]) * product(&source(1)),
        // Queries are [size, tokens, heads, batch], keys and values [size, rows, KV heads, batch].
        "FLASH_ATTN_EXT" => {
            let (query, key, value) = (source(0), source(1), source(2));
            2.0 * product(&query[1..]) * key[1] as f64 * (key[0] + value[0]) as f64
        }
        _ => results,
    }
}
