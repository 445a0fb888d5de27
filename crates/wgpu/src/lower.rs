use orlop_backend::{Device, DeviceError, LowerOptions, Reason, Segment, Steps};
use orlop_graph::{Graph, NodeId, Op};

/// A segment as this device runs it: one step a node.
pub(crate) fn lower(
    device: &dyn Device,
    segment: &Segment<'_>,
    options: &LowerOptions,
) -> Result<Steps, DeviceError> {
    if let Some(id) = segment.nodes.iter().find(|id| copies_onto_itself(segment.graph, **id)) {
        let node = segment.graph.node(*id);
        return Err(DeviceError::Unsupported {
            device: device.name().to_owned(),
            op: node.op.name().to_owned(),
            tensor: segment.graph.tensor(node.output).name.clone(),
            reason: Reason::Strides { operand: 1 },
        });
    }
    segment.one_step_per_node(device, options)
}

/// Whether a copy's source and destination share bytes: invocations would read what others have written.
fn copies_onto_itself(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let ([from, to], Op::Copy) = (&node.inputs[..], &node.op) else { return false };
    let [from, to] = [graph.tensor(*from), graph.tensor(*to)];
    let end = |tensor: &orlop_graph::Tensor| tensor.storage.offset + tensor.desc.bytes();
    let same = from.storage == to.storage && from.desc == to.desc;
    from.storage.root == to.storage.root
        && !same
        && from.storage.offset < end(to)
        && to.storage.offset < end(from)
}
