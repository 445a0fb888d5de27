//! Placement by rules: assignments, storage and weights.

use orlop_backend::Support;
use orlop_graph::{Leaf, NodeId, Origin, TensorId};

use crate::place::rules::Passes;
use crate::{DeviceId, Error, MachineFacts, PlacementReason};

impl<F: MachineFacts> Passes<'_, F> {
    /// Assignments, storage, weights. Assignments come first for all nodes, so that what shares storage with an
    /// assigned node goes with it.
    pub(crate) fn pin(&mut self) -> Result<(), Error> {
        let (graph, constraints) = (self.graph, self.constraints);
        let computed = || graph.node_ids().filter(|id| !graph.node(*id).op.is_view());
        for id in computed() {
            if let Some(device) = constraints.assigned.get(&graph.node(id).output).copied() {
                let owner = self.storage_owner(id)?;
                self.check_assignment(id, device, owner)?;
                self.put(id, device, PlacementReason::Assigned);
            }
        }
        for id in computed() {
            if self.nodes[id.index()].is_some() {
                continue;
            }
            if let Some((device, root)) = self.storage_owner(id)? {
                self.put(id, device, PlacementReason::OwnsStorage(root));
            } else if let Some((device, why)) = self.weight_choice(id) {
                self.put(id, device, why);
            }
        }
        Ok(())
    }

    /// The device that must run a node because it writes into storage that lies somewhere.
    fn storage_owner(&self, id: NodeId) -> Result<Option<(DeviceId, TensorId)>, Error> {
        let node = self.graph.node(id);
        let root = self.graph.tensor(node.output).storage.root;
        match self.graph.tensor(root).origin {
            // Others that write there were placed together with the first of them.
            Origin::Node(_) | Origin::Leaf(Leaf::Input | Leaf::Persistent) => {
                Ok(self.nodes[id.index()].map(|placed| (placed.device, root)))
            }
            Origin::Leaf(Leaf::Weight | Leaf::State) => {
                let reaches = |device: &DeviceId| self.runs(*device, id);
                match self.machine.device_ids().find(reaches) {
                    Some(device) => Ok(Some((device, root))),
                    None => Err(Error::StorageOutOfReach {
                        op: node.op.name().to_owned(),
                        storage: self.graph.tensor(root).name.clone(),
                        buffer_type: self.constraints.pinned.get(&root).map_or_else(
                            || "unknown memory".to_owned(),
                            |memory| self.machine.memory_name(memory),
                        ),
                    }),
                }
            }
        }
    }

    fn check_assignment(
        &self,
        id: NodeId,
        device: DeviceId,
        owner: Option<(DeviceId, TensorId)>,
    ) -> Result<(), Error> {
        let tensor = self.graph.tensor(self.graph.node(id).output).name.clone();
        // What shares the storage comes along, and must run there as well; with the first of them, all were asked.
        let asked = if owner.is_none() { self.company(&id) } else { std::slice::from_ref(&id) };
        for other in asked.iter().copied() {
            if let Some(reason) = self.machine.refusal(device, self.graph, other) {
                return Err(Error::BadAssignment {
                    tensor,
                    device: self.machine.name(device).to_owned(),
                    op: self.graph.node(other).op.name().to_owned(),
                    reason: reason.to_string(),
                });
            }
        }
        let Some((owner, root)) = owner.filter(|(owner, _)| *owner != device) else { return Ok(()) };
        let external = self.graph.root_leaf(root).is_some_and(|leaf| leaf.is_external());
        let shared = external || self.machine.shares_arena(owner, device);
        if shared && self.runs(device, id) {
            return Ok(());
        }
        Err(Error::ConflictingPin {
            tensor,
            storage: self.graph.tensor(root).name.clone(),
            owner: self.machine.name(owner).to_owned(),
            device: self.machine.name(device).to_owned(),
        })
    }

    /// The device of a node's weights, or a more preferred one that wants the node all the same.
    fn weight_choice(&self, id: NodeId) -> Option<(DeviceId, PlacementReason)> {
        let is_weight = |input: &&TensorId| self.constraints.lies(self.graph, **input).is_some();
        let weights: Vec<TensorId> = self.graph.node(id).inputs.iter().filter(is_weight).copied().collect();
        let first = *weights.first()?;
        let mut choice: Option<(DeviceId, TensorId)> = None;
        let bytes = |weight: TensorId| self.graph.tensor(weight).desc.bytes();
        for weight in weights {
            let Some(device) = self.device_of(weight, id) else { continue };
            if choice.is_none_or(|(so_far, known)| device < so_far && bytes(weight) >= bytes(known)) {
                choice = Some((device, weight));
            }
        }
        // From the host, which is the last device: what lies on another GPU is best computed there.
        let count = self.machine.device_count();
        let before = choice.map_or(count, |(device, _)| device.index());
        let before = if choice.is_some() && before + 1 < count { 0 } else { before };
        for device in self.machine.device_ids().take(before).filter(|device| self.can_bring(*device, id)) {
            let brought = self.machine.supports(device, self.graph, id, &|_| None);
            if matches!(brought, Support::Yes { wants_offload: true }) {
                return Some((
                    device,
                    PlacementReason::Offloaded(choice.map_or(first, |(_, weight)| weight)),
                ));
            }
        }
        choice.map(|(device, weight)| (device, PlacementReason::FollowsWeight(weight)))
    }

    /// The most preferred device that runs a node with one of its weights used where it lies, and the rest brought
    /// to it.
    fn device_of(&self, weight: TensorId, id: NodeId) -> Option<DeviceId> {
        let root = |tensor: TensorId| self.graph.tensor(tensor).storage.root;
        let there = |tensor: TensorId| {
            (root(tensor) == root(weight)).then(|| self.constraints.lies(self.graph, tensor)).flatten()
        };
        self.machine
            .device_ids()
            .find(|device| self.machine.supports(*device, self.graph, id, &there).is_yes())
    }

    /// Whether a node's weights can be copied to a device, or are used where they lie: a private layout is not copied.
    fn can_bring(&self, device: DeviceId, id: NodeId) -> bool {
        self.graph.node(id).inputs.iter().all(|input| {
            let lies = self.constraints.lies(self.graph, *input);
            let private = lies.is_some_and(|memory| self.machine.is_private(memory));
            !private || self.device_of(*input, id).is_some_and(|known| known <= device)
        })
    }
}
