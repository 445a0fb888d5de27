//! Constraints, placements and their reasons.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use orlop_backend::BufferType;
use orlop_graph::{Graph, NodeId, Origin, TensorId};

use crate::{DeviceId, Error, MachineFacts};

/// What placement is given beside the graph and the devices.
#[derive(Clone, Debug)]
pub struct Constraints<M = Arc<dyn BufferType>> {
    /// The kind of memory that each external leaf lies in.
    pub pinned: HashMap<TensorId, M>,
    /// Devices that the caller chose, by result. Views are where their storage is, leaves where they are used; for
    /// those, a choice says nothing.
    pub assigned: HashMap<TensorId, DeviceId>,
    /// Results that the caller wants to see as they are computed: a split ends behind each, and none is fused away.
    pub observed: HashSet<TensorId>,
    /// How nodes follow their neighbours.
    pub spread: Propagation,
}

/// In which order nodes that nothing else places follow their neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// Devices other than the least preferred spread first, down to readers and then up to producers; only then all
    /// devices, in the same way. Work gathers on preferred devices; the last stands for the host.
    #[default]
    Preferred,
    /// Every node follows its producers, on whichever device they are; then what is left follows its readers. Data
    /// stays where it was computed.
    Producers,
}

impl<M> Default for Constraints<M> {
    fn default() -> Constraints<M> {
        Constraints {
            pinned: HashMap::new(),
            assigned: HashMap::new(),
            observed: HashSet::new(),
            spread: Propagation::default(),
        }
    }
}

impl<M: Clone> Constraints<M> {
    /// Checks that every id is one of the graph's and the machine's.
    pub(crate) fn check(&self, graph: &Graph, machine: &impl MachineFacts) -> Result<(), Error> {
        let tensors = graph.tensors().len();
        // The smallest of the wrong ones, so that equal constraints give equal errors.
        let all = self.pinned.keys().chain(&self.observed).chain(self.assigned.keys());
        if let Some(tensor) = all.copied().filter(|tensor| graph.get(*tensor).is_none()).min() {
            return Err(Error::ForeignTensor { tensor, tensors });
        }
        self.assigned.values().copied().max().map_or(Ok(()), |device| machine.check_device(device))?;
        let computed = |tensor: TensorId| matches!(graph.tensor(tensor).origin, Origin::Node(node) if !graph.node(node).op.is_view());
        match self.observed.iter().copied().filter(|tensor| !computed(*tensor)).min() {
            Some(tensor) => Err(Error::NotComputed { tensor: graph.tensor(tensor).name.clone() }),
            None => Ok(()),
        }
    }

    /// The kind of memory that an external tensor lies in.
    pub(crate) fn lies(&self, graph: &Graph, tensor: TensorId) -> Option<&M> {
        self.pinned.get(&graph.tensor(tensor).storage.root)
    }
}

/// A device for every node, each with its reason, and one for every leaf that is not external.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Placement {
    pub(crate) nodes: Vec<NodePlacement>,
    pub(crate) leaves: Vec<Option<DeviceId>>,
}

/// A device and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodePlacement {
    /// The device.
    pub device: DeviceId,
    /// Why this one.
    pub why: PlacementReason,
}

/// Why a node runs where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PlacementReason {
    /// The caller said so.
    Assigned,
    /// It writes into storage that lies there.
    OwnsStorage(TensorId),
    /// It reads this weight, which lies there.
    FollowsWeight(TensorId),
    /// The device wants it although this weight must be copied to it.
    Offloaded(TensorId),
    /// It reads what this node computes there.
    FollowsProducer(NodeId),
    /// This node reads its result there.
    FollowsConsumer(NodeId),
    /// A preferred device shares the memory of the one it would have run on.
    SharesMemory(DeviceId),
    /// Most of its operands can be read there.
    MostOperands,
    /// The most preferred device that can run it.
    Preferred,
    /// No other device can run it.
    OnlyChoice,
    /// It computes nothing; it is where its storage is.
    View,
    /// The estimated time is shorter there, by this many nanoseconds.
    Cheaper {
        /// Nanoseconds saved.
        saved: u64,
    },
}

impl Placement {
    /// Where a node runs.
    pub fn node(&self, node: NodeId) -> NodePlacement {
        self.nodes[node.index()]
    }

    /// All nodes' places, by node.
    pub fn nodes(&self) -> &[NodePlacement] {
        &self.nodes
    }

    /// Where a leaf lies that the session places; `None` for external and unused leaves.
    pub fn leaf(&self, leaf: TensorId) -> Option<DeviceId> {
        self.leaves.get(leaf.index()).copied().flatten()
    }

    /// Where a tensor's storage lies; `None` if that is external.
    pub fn home(&self, graph: &Graph, tensor: TensorId) -> Option<DeviceId> {
        match graph.tensor(graph.tensor(tensor).storage.root).origin {
            Origin::Node(node) => Some(self.node(node).device),
            Origin::Leaf(_) => self.leaf(graph.tensor(tensor).storage.root),
        }
    }

    /// The assignments as a table: node, op, size, device, reason, sources.
    pub fn table<'a>(&'a self, graph: &'a Graph, machine: &'a impl MachineFacts) -> impl fmt::Display + 'a {
        Table { placement: self, graph, machine }
    }
}

struct Table<'a, F> {
    placement: &'a Placement,
    graph: &'a Graph,
    machine: &'a F,
}

impl<F: MachineFacts> fmt::Display for Table<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Table { placement, graph, machine } = self;
        for id in graph.node_ids() {
            let (node, placed) = (graph.node(id), placement.node(id));
            if placed.why == PlacementReason::View {
                continue;
            }
            let result = graph.tensor(node.output);
            let sources: Vec<&str> =
                node.inputs.iter().map(|input| graph.tensor(*input).name.as_str()).collect();
            writeln!(
                f,
                "{:>6}  {:<16} {:>12}  {:<10} {:<28} {} <- {}",
                id.to_string(),
                node.op.name(),
                result.desc.bytes(),
                machine.name(placed.device),
                placed.why.text(graph, *machine),
                result.name,
                sources.join(", ")
            )?;
        }
        Ok(())
    }
}

impl PlacementReason {
    /// The reason in words.
    pub fn text(&self, graph: &Graph, machine: &impl MachineFacts) -> String {
        let name = |id: &TensorId| graph.tensor(*id).name.clone();
        let result = |node: &NodeId| name(&graph.node(*node).output);
        match self {
            PlacementReason::Assigned => "assigned".to_owned(),
            PlacementReason::OwnsStorage(storage) => format!("owns {}", name(storage)),
            PlacementReason::FollowsWeight(weight) => format!("follows weight {}", name(weight)),
            PlacementReason::Offloaded(weight) => format!("offloaded, transfers {}", name(weight)),
            PlacementReason::FollowsProducer(node) => format!("follows {}", result(node)),
            PlacementReason::FollowsConsumer(node) => format!("for {}", result(node)),
            PlacementReason::SharesMemory(device) => format!("shares memory with {}", machine.name(*device)),
            PlacementReason::MostOperands => "most operands are there".to_owned(),
            PlacementReason::Preferred => "preferred".to_owned(),
            PlacementReason::OnlyChoice => "only choice".to_owned(),
            PlacementReason::View => "view".to_owned(),
            PlacementReason::Cheaper { saved } => format!("cheaper by {saved} ns"),
        }
    }
}
