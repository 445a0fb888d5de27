//! Where views and leaves are, and whether a placement is one of a graph.

use orlop_graph::{Graph, Leaf, Origin, TensorId};

use crate::{DeviceId, Error, MachineFacts, NodePlacement, Placement, PlacementReason};

impl Placement {
    /// Puts views and leaves where what they belong to is.
    pub(crate) fn settle(&mut self, graph: &Graph) {
        let mut leaves: Vec<Option<DeviceId>> = vec![None; graph.tensors().len()];
        let own = |id: TensorId| matches!(graph.root_leaf(id), Some(Leaf::Input | Leaf::Persistent));
        // What is written into lies where it is written; everything else where it is read first.
        for writes in [true, false] {
            for id in graph.node_ids().filter(|id| !graph.node(*id).op.is_view()) {
                let node = graph.node(id);
                for (slot, input) in node.inputs.iter().enumerate() {
                    let root = graph.tensor(*input).storage.root;
                    let relevant = !writes || node.op.storage_operand() == Some(slot);
                    if own(*input) && relevant {
                        leaves[root.index()].get_or_insert(self.nodes[id.index()].device);
                    }
                }
            }
        }
        for (id, leaf) in graph.leaves() {
            if !leaf.is_external() {
                leaves[id.index()].get_or_insert(DeviceId::default());
            }
        }
        for id in graph.node_ids().filter(|id| graph.node(*id).op.is_view()) {
            let root = graph.tensor(graph.node(id).output).storage.root;
            let device = match graph.tensor(root).origin {
                Origin::Node(producer) => Some(self.nodes[producer.index()].device),
                Origin::Leaf(_) => leaves[root.index()],
            };
            self.nodes[id.index()] =
                NodePlacement { device: device.unwrap_or_default(), why: PlacementReason::View };
        }
        self.leaves = leaves;
    }

    /// Checks that there is a place for every node and leaf, on devices that are there.
    pub(crate) fn check(&self, graph: &Graph, machine: &impl MachineFacts) -> Result<(), Error> {
        let devices =
            self.nodes.iter().map(|placed| placed.device).chain(self.leaves.iter().copied().flatten());
        devices.into_iter().try_for_each(|device| machine.check_device(device))?;
        if (self.nodes.len(), self.leaves.len()) != (graph.nodes().len(), graph.tensors().len()) {
            return Err(Error::ForeignPlacement {
                nodes: graph.nodes().len(),
                tensors: graph.tensors().len(),
                placed_nodes: self.nodes.len(),
                placed_tensors: self.leaves.len(),
            });
        }
        // Arenas are planned on the steps of their own devices, so no other device may write there. A placement of another
        // graph of the same size could ask for it.
        for (node, placed) in graph.nodes().iter().zip(&self.nodes).filter(|(node, _)| !node.op.is_view()) {
            let Some(home) = self.home(graph, node.output) else { continue };
            if !machine.shares_arena(home, placed.device) {
                return Err(Error::ConflictingPin {
                    tensor: graph.tensor(node.output).name.clone(),
                    storage: graph.tensor(graph.tensor(node.output).storage.root).name.clone(),
                    owner: machine.name(home).to_owned(),
                    device: machine.name(placed.device).to_owned(),
                });
            }
        }
        Ok(())
    }
}
