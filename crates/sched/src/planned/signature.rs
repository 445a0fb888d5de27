//! A number by which equal graphs are found.

use std::hash::{DefaultHasher, Hash, Hasher};

use orlop_graph::Graph;

/// A number that equal graphs have in common. Names and parameters of ops do not count: two graphs of one number are
/// compared.
pub(crate) fn signature(graph: &Graph) -> u64 {
    let mut hasher = DefaultHasher::new();
    for tensor in graph.tensors() {
        (tensor.desc, tensor.storage, tensor.origin).hash(&mut hasher);
    }
    for node in graph.nodes() {
        (node.op.name(), &node.inputs, node.output).hash(&mut hasher);
    }
    graph.outputs().hash(&mut hasher);
    hasher.finish()
}
