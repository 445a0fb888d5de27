//! Weights that products of many tokens take from the file, because a more preferred device computes those sooner although
//! the weights must be brought to it in every run. One token's products still use them where, and as, they were put.

use std::sync::Arc;

use orlop_backend::{BufferType, MemoryLayout, NodeQuery, Operand, Role, Support};
use orlop_graph::{Graph, NodeId, TensorId};
use orlop_sched::{DeviceId, Machine, node_seconds};

use crate::blueprint::WeightPlace;
use crate::storage::Uses;

/// The memory in which a weight lies as it is in the file, if a graph takes it from there.
pub(crate) fn streamed_from(
    machine: &Machine,
    uses: &Uses<'_>,
    leaf: TensorId,
    weight: &WeightPlace,
) -> Option<Arc<dyn BufferType>> {
    // What lies plainly can be brought from where it is.
    if weight.memory.layout() == MemoryLayout::Plain {
        return None;
    }
    let kinds = machine.device(weight.device).buffer_types(Role::Weight);
    let file = kinds.iter().find(|memory| memory.is_borrowed() && memory.layout() == MemoryLayout::Plain)?;
    let users = uses.of_leaf(leaf);
    let graph = uses.graph();
    let better = |device: DeviceId| {
        !users.is_empty()
            && users.iter().all(|node| is_wanted(machine, device, graph, *node))
            && seconds_with_bringing(machine, device, graph, leaf, users)
                < seconds(machine, weight.device, graph, users)
    };
    machine.indices().take(weight.device.index()).any(better).then(|| Arc::clone(file))
}

fn is_wanted(machine: &Machine, device: DeviceId, graph: &Graph, node: NodeId) -> bool {
    let node = graph.node(node);
    let operand = |id: &TensorId| Operand { desc: &graph.tensor(*id).desc, buffer_type: None };
    let inputs: Vec<Operand<'_>> = node.inputs.iter().map(operand).collect();
    let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(&node.output) };
    machine.device(device).supports(&query) == Support::Yes { wants_offload: true }
}

fn seconds(machine: &Machine, device: DeviceId, graph: &Graph, nodes: &[NodeId]) -> f64 {
    nodes.iter().map(|node| node_seconds(graph, machine.facts(device), *node)).sum()
}

fn seconds_with_bringing(
    machine: &Machine,
    device: DeviceId,
    graph: &Graph,
    weight: TensorId,
    nodes: &[NodeId],
) -> f64 {
    let link = machine.facts(device).host_link;
    let bytes = graph.tensor(weight).desc.bytes() as f64;
    seconds(machine, device, graph, nodes) + link.latency_seconds + bytes / link.bytes_per_second.max(1.0)
}
