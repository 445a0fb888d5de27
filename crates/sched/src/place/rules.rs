//! Placement by rules: the passes along edges.

use orlop_backend::Support;
use orlop_graph::{Graph, NodeId, TensorId};

use crate::{
    Constraints, DeviceId, Error, MachineFacts, NodePlacement, Placement, PlacementReason, Propagation,
};

/// Places a graph by rules, in this order; the first that says something decides.
///
/// 1. The caller's assignments.
/// 2. Data: a node that writes into existing storage runs where that lies; a node that reads a weight runs on the
///    most preferred device that can use the weight where it lies, unless a more preferred one wants it all the
///    same. Of several weights the first counts, or a later one that is at least as large and lies on a more
///    preferred device.
/// 3. Edges: what is left follows its operands, then its readers, in the order that [`Constraints::spread`] says.
/// 4. A node moves to a more preferred device that shares the memory; what is still left goes where most of its
///    operands can be read, and then to the most preferred device that runs it.
/// 5. At a cut between two devices, a node moves to the device of its readers if its operands are copied there anyway: of
///    a residual network, the sum crosses once, and its norm is computed on the other side. ([`Propagation::Producers`]
///    leaves nodes with their producers.)
///
/// # Errors
/// [`Error::Unplaceable`] with each device's reason, [`Error::BadAssignment`], [`Error::ConflictingPin`],
/// [`Error::StorageOutOfReach`], and ids that are not the graph's or the machine's.
pub fn place_by_rules<F: MachineFacts>(
    graph: &Graph,
    machine: &F,
    constraints: &Constraints<F::Memory>,
) -> Result<Placement, Error> {
    constraints.check(graph, machine)?;
    let mut passes = Passes::new(graph, machine, constraints);
    passes.pin()?;
    passes.spread();
    passes.upgrade();
    passes.rescue()?;
    if constraints.spread == Propagation::Preferred {
        passes.join_readers();
    }
    passes.finish()
}

pub(crate) struct Passes<'a, F: MachineFacts> {
    pub(crate) graph: &'a Graph,
    pub(crate) machine: &'a F,
    pub(crate) constraints: &'a Constraints<F::Memory>,
    pub(crate) nodes: Vec<Option<NodePlacement>>,
    /// The node that computes each tensor's contents, views looked through; `None` for leaves.
    producers: Vec<Option<NodeId>>,
    /// The nodes that read each node's result, views looked through.
    consumers: Vec<Vec<NodeId>>,
    /// By storage: the nodes that write into it, its producer included, if there are several. They run on one device.
    writers: Vec<Vec<NodeId>>,
}

impl<'a, F: MachineFacts> Passes<'a, F> {
    fn new(graph: &'a Graph, machine: &'a F, constraints: &'a Constraints<F::Memory>) -> Passes<'a, F> {
        let mut producers = vec![None; graph.tensors().len()];
        let mut consumers = vec![Vec::new(); graph.nodes().len()];
        for id in graph.node_ids() {
            let node = graph.node(id);
            if node.op.is_view() {
                producers[node.output.index()] = producers[node.inputs[0].index()];
                continue;
            }
            for input in &node.inputs {
                if let Some(producer) = producers[input.index()] {
                    let readers: &mut Vec<NodeId> = &mut consumers[NodeId::index(producer)];
                    if readers.last() != Some(&id) {
                        readers.push(id);
                    }
                }
            }
            producers[node.output.index()] = Some(id);
        }
        let root_of = |id: NodeId| graph.tensor(graph.node(id).output).storage.root;
        let writes = |id: &NodeId| {
            let external = graph.root_leaf(root_of(*id)).is_some_and(|leaf| leaf.is_external());
            !graph.node(*id).op.is_view() && !external
        };
        let mut writes_to = vec![0_u32; graph.tensors().len()];
        graph.node_ids().filter(writes).for_each(|id| writes_to[root_of(id).index()] += 1);
        let mut writers = vec![Vec::new(); graph.tensors().len()];
        // Most storages have one writer.
        for id in graph.node_ids().filter(writes).filter(|id| writes_to[root_of(*id).index()] > 1) {
            writers[root_of(id).index()].push(id);
        }
        let nodes = vec![None; graph.nodes().len()];
        Passes { graph, machine, constraints, nodes, producers, consumers, writers }
    }

    /// The nodes that must run where this one does, itself included.
    pub(crate) fn company<'s>(&'s self, node: &'s NodeId) -> &'s [NodeId] {
        let root = self.graph.tensor(self.graph.node(*node).output).storage.root;
        match self.writers[root.index()].as_slice() {
            [] => std::slice::from_ref(node),
            writers => writers,
        }
    }

    /// Whether a device runs a node with weights and states used where they lie, and everything else brought to it.
    fn supports(&self, device: DeviceId, node: NodeId) -> Support {
        self.machine.supports(device, self.graph, node, &|tensor| self.constraints.lies(self.graph, tensor))
    }

    /// Whether a device runs a node, and those that must run where it does, if everything is brought to it but
    /// external storage that is written into.
    pub(crate) fn runs(&self, device: DeviceId, node: NodeId) -> bool {
        self.company(&node).iter().all(|node| {
            let node_data = self.graph.node(*node);
            let written = node_data.op.storage_operand().map(|slot| node_data.inputs[slot]);
            let root = written.map(|tensor| self.graph.tensor(tensor).storage.root);
            let lies = |tensor: TensorId| -> Option<&F::Memory> {
                let own = self.graph.tensor(tensor).storage.root;
                if Some(own) == root { self.constraints.pinned.get(&own) } else { None }
            };
            self.machine.supports(device, self.graph, *node, &lies).is_yes()
        })
    }

    pub(crate) fn put(&mut self, node: NodeId, device: DeviceId, why: PlacementReason) {
        let root = self.graph.tensor(self.graph.node(node).output).storage.root;
        self.nodes[node.index()] = Some(NodePlacement { device, why });
        for other in &self.writers[root.index()] {
            let why = PlacementReason::OwnsStorage(root);
            self.nodes[other.index()].get_or_insert(NodePlacement { device, why });
        }
    }

    fn open_nodes(&self) -> Vec<NodeId> {
        let open = |id: &NodeId| self.nodes[id.index()].is_none() && !self.graph.node(*id).op.is_view();
        self.graph.node_ids().filter(open).collect()
    }

    /// Along edges: down to readers, up to producers.
    fn spread(&mut self) {
        let last = self.machine.device_count() - 1;
        let rounds: &[bool] = match self.constraints.spread {
            Propagation::Preferred => &[false, true],
            Propagation::Producers => &[true],
        };
        let all: Vec<NodeId> =
            self.graph.node_ids().filter(|id| !self.graph.node(*id).op.is_view()).collect();
        for with_last in rounds {
            for up in [false, true] {
                // The device of the node that was passed last. Preferred devices spread no further than to where
                // another one's work begins: a chain of sums past all layers would else gather on one of them.
                let mut passed: Option<DeviceId> = None;
                for position in 0..all.len() {
                    let id = all[if up { all.len() - 1 - position } else { position }];
                    if self.nodes[id.index()].is_none() {
                        let near = passed;
                        let allowed =
                            |device: DeviceId| *with_last || (device.index() != last && near == Some(device));
                        if up {
                            let readers = std::mem::take(&mut self.consumers[id.index()]);
                            self.follow(id, &readers, &allowed, PlacementReason::FollowsConsumer);
                            self.consumers[id.index()] = readers;
                        } else {
                            let inputs = self.graph.node(id).inputs.iter();
                            let sources: Vec<NodeId> =
                                inputs.filter_map(|input| self.producers[input.index()]).collect();
                            self.follow(id, &sources, &allowed, PlacementReason::FollowsProducer);
                        }
                    }
                    passed = self.nodes[id.index()].map(|placed| placed.device).or(passed);
                }
            }
        }
    }

    /// Takes the device of a neighbour: of the nearest in order, so that the values of long-ago layers (residual
    /// streams) do not pull later ones to their device; under [`Propagation::Producers`] the most preferred.
    fn follow(
        &mut self,
        id: NodeId,
        neighbours: &[NodeId],
        allowed: &dyn Fn(DeviceId) -> bool,
        why: fn(NodeId) -> PlacementReason,
    ) {
        if self.nodes[id.index()].is_some() {
            // Placed since, together with another that writes into the same storage.
            return;
        }
        let placed = neighbours.iter().filter_map(|node| Some((self.nodes[node.index()]?.device, *node)));
        let fits = |(device, _): &(DeviceId, NodeId)| allowed(*device) && self.runs(*device, id);
        let choice = match self.constraints.spread {
            Propagation::Preferred => {
                placed.min_by_key(|(_, node)| node.index().abs_diff(id.index())).filter(fits)
            }
            Propagation::Producers => placed.filter(fits).min(),
        };
        if let Some((device, node)) = choice {
            self.put(id, device, why(node));
        }
    }

    /// To a more preferred device with the same memory.
    fn upgrade(&mut self) {
        for id in self.graph.node_ids() {
            let Some(placed) = self.nodes[id.index()] else { continue };
            let root = self.graph.tensor(self.graph.node(id).output).storage.root;
            let alone = self.writers[root.index()].is_empty();
            if matches!(
                placed.why,
                PlacementReason::Assigned | PlacementReason::Offloaded(_) | PlacementReason::View
            ) || !alone
            {
                continue;
            }
            let better = self.machine.device_ids().take(placed.device.index()).find(|device| {
                self.machine.shares_arena(*device, placed.device) && self.supports(*device, id).is_yes()
            });
            if let Some(device) = better {
                self.put(id, device, PlacementReason::SharesMemory(placed.device));
            }
        }
    }

    /// Where most operands can be read; then wherever it runs.
    fn rescue(&mut self) -> Result<(), Error> {
        for id in self.open_nodes() {
            if self.nodes[id.index()].is_some() {
                continue;
            }
            let node = self.graph.node(id);
            let able: Vec<DeviceId> =
                self.machine.device_ids().filter(|device| self.runs(*device, id)).collect();
            let readable = |device: DeviceId| {
                let here = |input: &&TensorId| {
                    let producer =
                        self.producers[input.index()].and_then(|producer| self.nodes[producer.index()]);
                    producer.is_some_and(|placed| self.machine.shares_arena(placed.device, device))
                };
                node.inputs.iter().filter(here).count()
            };
            let best =
                able.iter().copied().max_by_key(|device| (readable(*device), std::cmp::Reverse(*device)));
            let Some(device) = best else {
                return Err(self.unplaceable(id));
            };
            let why = match () {
                () if able.len() == 1 && self.machine.device_count() > 1 => PlacementReason::OnlyChoice,
                () if readable(device) > 0 => PlacementReason::MostOperands,
                () => PlacementReason::Preferred,
            };
            self.put(id, device, why);
        }
        Ok(())
    }

    /// Moves nodes across a cut to the device of all their readers, where all their operands are or are copied to for
    /// others: one tensor less is copied. Nodes that data or the caller placed stay, and so do results, and nodes in the
    /// middle of a device's work, which would become splits of their own.
    fn join_readers(&mut self) {
        let results = self.graph.results();
        let mut next: Option<DeviceId> = None;
        let all: Vec<NodeId> = self.graph.node_ids().collect();
        for id in all.into_iter().rev() {
            let node = self.graph.node(id);
            let Some(placed) = self.nodes[id.index()].filter(|_| !node.op.is_view()) else { continue };
            let following = next.replace(placed.device);
            let follows = matches!(
                placed.why,
                PlacementReason::FollowsProducer(_)
                    | PlacementReason::FollowsConsumer(_)
                    | PlacementReason::MostOperands
            );
            let Some(target) = following.filter(|target| *target != placed.device && follows) else {
                continue;
            };
            let on_target =
                |other: &NodeId| self.nodes[other.index()].is_some_and(|other| other.device == target);
            let readers = &self.consumers[id.index()];
            let shared = self.machine.shares_arena(placed.device, target);
            let result = results.iter().any(|result| {
                self.graph.tensor(*result).storage.root == self.graph.tensor(node.output).storage.root
            });
            let moves = !shared
                && !result
                && !readers.is_empty()
                && readers.iter().all(on_target)
                && self.company(&id).len() == 1
                && node.inputs.iter().all(|input| self.is_copied_anyway(*input, id, target))
                && self.runs(target, id);
            if moves {
                self.put(id, target, PlacementReason::FollowsConsumer(readers[0]));
                next = Some(target);
            }
        }
    }

    /// Whether an operand of a node is computed on a device, or another node there reads the same bytes of it.
    fn is_copied_anyway(&self, input: TensorId, node: NodeId, device: DeviceId) -> bool {
        let Some(producer) = self.producers[input.index()] else { return false };
        let on_device = |id: NodeId| self.nodes[id.index()].is_some_and(|placed| placed.device == device);
        let tensor = self.graph.tensor(input);
        let same = |other: &TensorId| {
            let other = self.graph.tensor(*other);
            (other.storage, other.desc.bytes()) == (tensor.storage, tensor.desc.bytes())
        };
        let reads = |other: &NodeId| {
            *other != node && on_device(*other) && self.graph.node(*other).inputs.iter().any(same)
        };
        on_device(producer)
            || (self.writers[tensor.storage.root.index()].is_empty()
                && self.consumers[producer.index()].iter().any(reads))
    }

    fn unplaceable(&self, id: NodeId) -> Error {
        let node = self.graph.node(id);
        let refusal = |device: DeviceId| {
            let reason = self.machine.refusal(device, self.graph, id);
            let text =
                reason.map_or_else(|| "cannot reach its storage".to_owned(), |reason| reason.to_string());
            format!("{}: {text}", self.machine.name(device))
        };
        Error::Unplaceable {
            op: node.op.name().to_owned(),
            tensor: self.graph.tensor(node.output).name.clone(),
            refusals: self.machine.device_ids().map(refusal).collect(),
        }
    }

    fn finish(self) -> Result<Placement, Error> {
        let undecided = NodePlacement { device: DeviceId::default(), why: PlacementReason::View };
        let nodes = self.nodes.into_iter().map(|placed| placed.unwrap_or(undecided)).collect();
        let mut placement = Placement { nodes, leaves: Vec::new() };
        placement.settle(self.graph);
        Ok(placement)
    }
}
