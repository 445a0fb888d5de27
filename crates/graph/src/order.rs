//! Orders of execution: what must come before what, and sequences of nodes with barriers.

use crate::access::{Access, AccessKind, Edge, Hazard, dependencies};
use crate::{Graph, GraphError, NodeId, Origin, TensorId};

impl Graph {
    /// The bytes of storage that each node reads and writes, in the caller's order, with roots numbered as
    /// tensors. Views touch nothing.
    pub fn accesses(&self) -> Vec<Access> {
        let mut accesses = Vec::new();
        for (step, node) in self.nodes().iter().enumerate() {
            if node.op.is_view() {
                continue;
            }
            let touch = |id: TensorId, kind| {
                let tensor = self.tensor(id);
                let start = tensor.storage.offset;
                let range = start..start + tensor.desc.bytes();
                Access { step: step as u32, root: tensor.storage.root.0, range, kind }
            };
            let destination = node.op.storage_operand();
            for (slot, input) in node.inputs.iter().enumerate() {
                // A destination is only written, not read.
                if Some(slot) != destination {
                    accesses.push(touch(*input, AccessKind::Read));
                }
            }
            accesses.push(touch(node.output, AccessKind::Write));
        }
        accesses
    }

    /// Storage edges: which nodes must come before which because they touch the same bytes.
    pub fn storage_edges(&self) -> Vec<Edge> {
        dependencies(&self.accesses())
    }

    /// For each node, the nodes that must come before it, sorted: the producers of its operands (views
    /// included) and the earlier ends of its storage edges.
    pub fn predecessors(&self) -> Vec<Vec<NodeId>> {
        let Predecessors { needed: mut before, overwritten } = self.predecessors_by_reason();
        for (list, readers) in before.iter_mut().zip(overwritten) {
            list.extend(readers);
            list.sort_unstable();
            list.dedup();
        }
        before
    }

    fn predecessors_by_reason(&self) -> Predecessors {
        let mut needed = vec![Vec::new(); self.nodes().len()];
        let mut overwritten = needed.clone();
        for (index, node) in self.nodes().iter().enumerate() {
            for input in &node.inputs {
                if let Origin::Node(producer) = self.tensor(*input).origin {
                    needed[index].push(producer);
                }
            }
        }
        for edge in self.storage_edges() {
            // An earlier write counts as needed: the later one may cover it only in part.
            let list = if edge.hazard == Hazard::WriteAfterRead { &mut overwritten } else { &mut needed };
            list[edge.after as usize].push(NodeId(edge.before));
        }
        Predecessors { needed, overwritten }
    }

    /// The caller's order, a barrier after every node: memory is reused as soon as it can be.
    pub fn order(&self) -> Order {
        Order { nodes: self.node_ids().collect(), groups: (1..=self.nodes().len()).collect() }
    }
}

/// For each node, what must come before it.
struct Predecessors {
    /// Nodes whose results or writes it uses.
    needed: Vec<Vec<NodeId>>,
    /// Nodes that read what it overwrites: they come first if they run.
    overwritten: Vec<Vec<NodeId>>,
}

/// Nodes in the order of execution, in groups that end at barriers. Memory that a group reads for the last
/// time is given back at its barrier, so the members of a group never reuse each other's operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    nodes: Vec<NodeId>,
    /// End of each group in `nodes`; ascending, the last is `nodes.len()`.
    groups: Vec<usize>,
}

impl Order {
    /// An order from node numbers, -1 being a barrier; empty groups are dropped. Nodes that are left out are not
    /// run.
    ///
    /// # Errors
    /// If a number is out of range, a node comes twice, or a node comes before one that it depends on. Nodes whose
    /// results are used must be listed; earlier readers of what is overwritten may be left out.
    pub fn new(graph: &Graph, sequence: &[i64]) -> Result<Order, GraphError> {
        let nodes = graph.nodes().len();
        let mut order = Order { nodes: Vec::new(), groups: Vec::new() };
        let mut places = vec![None; nodes];
        for (position, entry) in sequence.iter().enumerate() {
            if *entry == -1 {
                order.close_group();
                continue;
            }
            let index = usize::try_from(*entry).ok().filter(|index| *index < nodes);
            let index = index.ok_or(GraphError::NoSuchNode { position, node: *entry, nodes })?;
            let node = NodeId(index as u32);
            if places[index].replace(position).is_some() {
                return Err(GraphError::Repeated { node });
            }
            order.nodes.push(node);
        }
        order.close_group();
        let Predecessors { needed, overwritten } = graph.predecessors_by_reason();
        for node in &order.nodes {
            let missing = needed[node.index()].iter().find(|id| places[id.index()].is_none());
            let mut before = needed[node.index()].iter().chain(&overwritten[node.index()]);
            let late = before.find(|id| places[id.index()] > places[node.index()]);
            if let Some(needs) = missing.or(late) {
                return Err(GraphError::TooEarly { node: *node, needs: *needs });
            }
        }
        Ok(order)
    }

    fn close_group(&mut self) {
        if self.groups.last().copied().unwrap_or(0) < self.nodes.len() {
            self.groups.push(self.nodes.len());
        }
    }

    /// The nodes in order.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The groups, each as a slice of the nodes.
    pub fn groups(&self) -> impl Iterator<Item = &[NodeId]> {
        let starts = std::iter::once(0).chain(self.groups.iter().copied());
        starts.zip(&self.groups).map(|(start, end)| &self.nodes[start..*end])
    }
}
