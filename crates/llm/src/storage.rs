use std::sync::Arc;

use orlop_backend::{BufferType, Device, MemoryLayout, NodeQuery, Operand, Reason, Role, Support};
use orlop_graph::{Graph, NodeId, TensorId};

use crate::Error;

/// The nodes that use each leaf of a graph, views of it included.
pub(crate) struct Uses<'a> {
    graph: &'a Graph,
    by_root: Vec<Vec<NodeId>>,
}

impl Uses<'_> {
    pub(crate) fn of(graph: &Graph) -> Uses<'_> {
        let mut by_root: Vec<Vec<NodeId>> = vec![Vec::new(); graph.tensors().len()];
        for id in graph.node_ids() {
            for input in &graph.node(id).inputs {
                let users = &mut by_root[graph.tensor(*input).storage.root.index()];
                if users.last() != Some(&id) {
                    users.push(id);
                }
            }
        }
        Uses { graph, by_root }
    }

    /// The nodes that use a leaf.
    pub(crate) fn of_leaf(&self, leaf: TensorId) -> &[NodeId] {
        &self.by_root[leaf.index()]
    }

    /// The graph.
    pub(crate) fn graph(&self) -> &Graph {
        self.graph
    }

    /// Why a device refuses one of the uses of a leaf that lies in a kind of memory.
    fn refusal(&self, device: &dyn Device, memory: &Arc<dyn BufferType>, leaf: TensorId) -> Option<Reason> {
        let operand = |id: &TensorId| {
            let tensor = self.graph.tensor(*id);
            Operand { desc: &tensor.desc, buffer_type: (tensor.storage.root == leaf).then_some(memory) }
        };
        self.by_root[leaf.index()].iter().find_map(|node| {
            let node = self.graph.node(*node);
            let inputs: Vec<Operand<'_>> = node.inputs.iter().map(operand).collect();
            let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(&node.output) };
            match device.supports(&query) {
                Support::Yes { .. } => None,
                Support::No(reason) => Some(reason),
            }
        })
    }
}

/// The first kind of memory of a device from which it can do all that graphs do with a weight: in each graph, a leaf.
pub(crate) fn choose_memory<'a>(
    device: &Arc<dyn Device>,
    name: &str,
    leaves: impl Iterator<Item = (&'a Uses<'a>, TensorId)> + Clone,
) -> Result<Arc<dyn BufferType>, Error> {
    let types = match device.buffer_types(Role::Weight) {
        [] => device.buffer_types(Role::Arena),
        types => types,
    };
    let mut refused = None;
    for memory in types {
        match refusal(device, memory, leaves.clone()) {
            None => return Ok(Arc::clone(memory)),
            Some(reason) => refused = Some(reason),
        }
    }
    Err(Error::NoMemoryFor {
        device: device.name().to_owned(),
        tensor: name.to_owned(),
        reason: refused.map_or_else(|| "it has no memory".to_owned(), |reason| reason.to_string()),
    })
}

/// Memory over the file from which a device can do the same as from memory of its own that a weight is repacked or
/// copied into. Only the host's processor looks into files.
pub(crate) fn until_repacked<'a>(
    device: &Arc<dyn Device>,
    memory: &Arc<dyn BufferType>,
    leaves: impl Iterator<Item = (&'a Uses<'a>, TensorId)> + Clone,
) -> Option<Arc<dyn BufferType>> {
    if memory.is_borrowed() || !memory.is_host() {
        return None;
    }
    let is_file =
        |memory: &&Arc<dyn BufferType>| memory.is_borrowed() && memory.layout() == MemoryLayout::Plain;
    let file = device.buffer_types(Role::Weight).iter().find(is_file)?;
    refusal(device, file, leaves).is_none().then(|| Arc::clone(file))
}

/// Why a device refuses something that graphs do with a weight.
fn refusal<'a>(
    device: &Arc<dyn Device>,
    memory: &Arc<dyn BufferType>,
    mut leaves: impl Iterator<Item = (&'a Uses<'a>, TensorId)>,
) -> Option<Reason> {
    leaves.find_map(|(uses, leaf)| uses.refusal(&**device, memory, leaf))
}
