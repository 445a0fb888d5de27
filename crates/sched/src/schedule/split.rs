//! Cutting a placed graph into splits, with the transfers between them.

use std::collections::{HashMap, HashSet};
use std::ops::{Index, Range};

use orlop_graph::{Graph, Leaf, NodeId, Origin, TensorId};

use crate::speeds::is_heavy;
use crate::{Constraints, DeviceId, MachineFacts, Placement, SplitId, TransferId};

/// A placed graph cut into parts that one device each runs, with the transfers between them. A plain value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Schedule {
    /// The parts, in an order in which they can run.
    pub splits: Vec<Split>,
    /// The transfers that splits begin with.
    pub transfers: Vec<Transfer>,
    /// The split that runs each node; views are in the one that reads them first, or nowhere.
    pub(crate) split_of: Vec<Option<SplitId>>,
}

/// Neighbouring nodes that one device runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Split {
    /// The device.
    pub device: DeviceId,
    /// The nodes, views left out.
    pub nodes: Vec<NodeId>,
    /// Transfers that are made when it begins.
    pub transfers: Vec<TransferId>,
    /// Where its operands are that lie elsewhere: the transfer of this split or an earlier one that brings them.
    pub reads_transfer: HashMap<TensorId, TransferId>,
    /// Splits of other devices that must have ended when it begins.
    pub waits: Vec<SplitId>,
    /// The result of its last node, if the caller wants to see it.
    pub observed: Option<TensorId>,
}

/// Part of a storage that is copied to another device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Transfer {
    /// `device#tensor`.
    pub name: String,
    /// The storage's root.
    pub root: TensorId,
    /// The bytes of it.
    pub range: Range<u64>,
    /// Bytes that it takes there: what the device's memory asks for, for the tensors that are read from it.
    pub room: u64,
    /// The device that it is copied to.
    pub to: DeviceId,
    /// The split that makes it.
    pub split: SplitId,
    /// How many of the split's waits come before it. Transfers of what is there already are made while the device would
    /// only wait.
    pub after: usize,
    /// Whether it is part of a weight, which no run changes: the copy can be resident.
    pub constant: bool,
    /// Whether the copy is resident: it stays on its device between runs, as copies of weights do while the budget allows.
    pub resident: bool,
}

/// Cuts a placed graph into splits.
///
/// A split ends where the next node that computes something runs elsewhere; and behind the last node that the following split
/// needs, if products of its own follow, which are then computed at the same time as that split. What a split reads and its device
/// cannot reach is copied once for each version of the bytes, and shared by all later splits of that device.
///
/// # Panics
/// If the placement is another graph's or machine's.
pub fn split<F: MachineFacts>(
    graph: &Graph,
    machine: &F,
    constraints: &Constraints<F::Memory>,
    placement: &Placement,
) -> Schedule {
    split_offloading(graph, machine, constraints, placement, &OffloadedWeights::default())
}

/// Weights whose copies are not resident: every run transfers them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffloadedWeights {
    pub(crate) weights: HashSet<(TensorId, DeviceId)>,
    /// The split of that device before the one that reads a weight transfers it, so that it comes while that one is computed.
    /// That takes room for two.
    pub(crate) early: bool,
}

/// As [`split`], with weights that are offloaded: a split begins at each node that reads one.
pub(crate) fn split_offloading<F: MachineFacts>(
    graph: &Graph,
    machine: &F,
    constraints: &Constraints<F::Memory>,
    placement: &Placement,
    offloaded: &OffloadedWeights,
) -> Schedule {
    let (before, producers) = (graph.predecessors(), producers(graph));
    let mut cut = Cut {
        graph,
        machine,
        constraints,
        placement,
        offloaded,
        schedule: Schedule {
            splits: Vec::new(),
            transfers: Vec::new(),
            split_of: vec![None; graph.nodes().len()],
        },
        written: vec![Vec::new(); graph.tensors().len()],
        known: HashMap::new(),
        needs: Vec::new(),
        early_ends: early_ends(graph, placement, &before, &producers),
        before,
        producers,
    };
    for id in graph.node_ids().filter(|id| !graph.node(*id).op.is_view()) {
        cut.add(id);
    }
    cut.add_waits();
    cut.order_copies();
    cut.schedule
}

/// Bytes of a root on a device, and the node that wrote them last.
type CopyKey = (TensorId, u64, u64, DeviceId);

struct Cut<'a, F: MachineFacts> {
    graph: &'a Graph,
    machine: &'a F,
    constraints: &'a Constraints<F::Memory>,
    placement: &'a Placement,
    offloaded: &'a OffloadedWeights,
    schedule: Schedule,
    /// Writes to each root so far: bytes and node.
    written: Vec<Vec<(Range<u64>, NodeId)>>,
    /// Transfers so far, with the number of writes that they have seen.
    known: HashMap<CopyKey, (Option<NodeId>, TransferId)>,
    /// The nodes that wrote what each transfer reads.
    needs: Vec<Vec<NodeId>>,
    /// Nodes behind which splits end although the next node runs on the same device.
    early_ends: Vec<bool>,
    /// The nodes that each one comes after.
    before: Vec<Vec<NodeId>>,
    /// See [`producers`].
    producers: Vec<Option<NodeId>>,
}

impl<F: MachineFacts> Cut<'_, F> {
    fn add(&mut self, id: NodeId) {
        let device = self.placement.node(id).device;
        let offloads = self.graph.node(id).inputs.iter().any(|input| {
            let root = self.graph.tensor(*input).storage.root;
            self.offloaded.weights.contains(&(root, device))
        });
        let goes_on = |split: &Split| {
            let has_ended = split.nodes.last().is_some_and(|last| self.early_ends[last.index()]);
            split.device == device && split.observed.is_none() && !has_ended && !offloads
        };
        if !self.schedule.splits.last().is_some_and(goes_on) {
            self.schedule.splits.push(Split { device, ..Split::default() });
        }
        let current = SplitId::new(self.schedule.splits.len() - 1);
        let node = self.graph.node(id);
        for (slot, input) in node.inputs.iter().enumerate() {
            if node.op.storage_operand() == Some(slot) || self.reaches(device, id, *input) {
                continue;
            }
            let transfer = self.copy_of(*input, device, current);
            self.schedule.splits[current.index()].reads_transfer.insert(*input, transfer);
        }
        let split = &mut self.schedule.splits[current.index()];
        split.nodes.push(id);
        split.observed = Some(node.output).filter(|id| self.constraints.observed.contains(id));
        self.schedule.split_of[id.index()] = Some(current);
        let output = self.graph.tensor(node.output);
        let range = output.storage.offset..output.storage.offset + output.desc.bytes();
        let written = &mut self.written[output.storage.root.index()];
        // Overwritten as a whole, earlier writes no longer matter.
        written.retain(|(old, _)| !(range.start <= old.start && old.end <= range.end));
        written.push((range, id));
    }

    /// Whether a device can read a tensor where it lies.
    fn reaches(&self, device: DeviceId, id: NodeId, tensor: TensorId) -> bool {
        let lies: &F::Memory = match self.placement.home(self.graph, tensor) {
            Some(home) if self.machine.shares_arena(home, device) => return true,
            Some(home) => self.machine.arena(home),
            None => match self.constraints.lies(self.graph, tensor) {
                Some(memory) => memory,
                None => return true,
            },
        };
        let there = |other: TensorId| (other == tensor).then_some(lies);
        self.machine.supports(device, self.graph, id, &there).is_yes()
    }

    /// The transfer of a tensor's bytes to a device, as they are now.
    fn copy_of(&mut self, tensor: TensorId, device: DeviceId, split: SplitId) -> TransferId {
        let data = self.graph.tensor(tensor);
        let root = data.storage.root;
        let range = data.storage.offset..data.storage.offset + data.desc.bytes();
        let overlaps = |(old, _): &&(Range<u64>, NodeId)| old.start < range.end && range.start < old.end;
        let writers = || self.written[root.index()].iter().filter(overlaps).map(|(_, node)| *node);
        let version = writers().max();
        let offloaded = self.offloaded.weights.contains(&(root, device));
        let before =
            || self.schedule.splits[..split.index()].iter().rposition(|split| split.device == device);
        let early = before().filter(|_| offloaded && self.offloaded.early).map(SplitId::new);
        let split = early.unwrap_or(split);
        let key = (root, range.start, range.end, device);
        let room =
            self.machine.alloc_bytes(self.machine.arena(device), &data.desc).max(range.end - range.start);
        if let Some((seen, transfer)) = self.known.get(&key)
            && *seen == version
        {
            let known = &mut self.schedule.transfers[transfer.index()];
            known.room = known.room.max(room);
            return *transfer;
        }
        let transfer = TransferId::new(self.schedule.transfers.len());
        let constant = self.graph.tensor(root).origin == Origin::Leaf(Leaf::Weight);
        let name = format!("{}#{}", self.machine.name(device), data.name);
        self.needs.push(writers().collect());
        self.schedule.transfers.push(Transfer {
            name,
            root,
            range,
            room,
            to: device,
            split,
            after: 0,
            constant,
            resident: constant && !offloaded,
        });
        self.schedule.splits[split.index()].transfers.push(transfer);
        self.known.insert(key, (version, transfer));
        transfer
    }

    /// Which splits must have ended before which: for every edge between nodes of different devices.
    fn add_waits(&mut self) {
        let view_free = |node: NodeId| !self.graph.node(node).op.is_view();
        let mut waits: Vec<Vec<SplitId>> = vec![Vec::new(); self.schedule.splits.len()];
        for id in self.graph.node_ids().filter(|id| view_free(*id)) {
            let Some(own) = self.schedule.split_of[id.index()] else { continue };
            let inputs = self.graph.node(id).inputs.iter().filter_map(|input| self.producers[input.index()]);
            for earlier in
                self.before[id.index()].iter().copied().filter(|node| view_free(*node)).chain(inputs)
            {
                if let Some(split) = self.schedule.split_of[earlier.index()]
                    && split != own
                    && self.schedule[split].device != self.schedule[own].device
                {
                    waits[own.index()].push(split);
                }
            }
        }
        // Devices that share an arena take turns.
        let same = |device: DeviceId| {
            self.machine.device_ids().find(|first| self.machine.shares_arena(*first, device))
        };
        let first_of: Vec<usize> =
            self.machine.device_ids().map(|device| same(device).unwrap_or(device).index()).collect();
        let mut last_of = vec![None; self.machine.device_count()];
        for (id, split) in self.schedule.ids().zip(&self.schedule.splits) {
            let before = last_of[first_of[split.device.index()]].replace(id);
            waits[id.index()].extend(before.filter(|before| self.schedule[*before].device != split.device));
        }
        for (split, mut waits) in self.schedule.splits.iter_mut().zip(waits) {
            waits.sort_unstable();
            waits.dedup();
            split.waits = waits;
        }
    }

    /// Orders each split's transfers by the waits that they need.
    fn order_copies(&mut self) {
        let Schedule { splits, transfers, split_of } = &mut self.schedule;
        for (transfer, needs) in transfers.iter_mut().zip(&self.needs) {
            let split = &splits[transfer.split.index()];
            // A device that takes turns with another one writes nothing before its turn.
            let shares =
                |other: &SplitId| self.machine.shares_arena(splits[other.index()].device, split.device);
            let turn = split.waits.iter().rposition(shares).map_or(0, |at| at + 1);
            let behind = |writer: &NodeId| {
                let other = split_of[writer.index()]?;
                let elsewhere = splits[other.index()].device != split.device;
                // A writer elsewhere is among the waits; if it were not, all of them would come first.
                elsewhere.then(|| split.waits.binary_search(&other).map_or(split.waits.len(), |at| at + 1))
            };
            transfer.after = needs.iter().filter_map(behind).max().unwrap_or(0).max(turn);
        }
        splits
            .iter_mut()
            .for_each(|split| split.transfers.sort_by_key(|transfer| transfers[transfer.index()].after));
    }
}

/// The last node of each run on one device that the next run needs, where products of the same run follow it.
fn early_ends(
    graph: &Graph,
    placement: &Placement,
    before: &[Vec<NodeId>],
    producers: &[Option<NodeId>],
) -> Vec<bool> {
    let nodes: Vec<NodeId> = graph.node_ids().filter(|id| !graph.node(*id).op.is_view()).collect();
    let runs: Vec<&[NodeId]> =
        nodes.chunk_by(|one, next| placement.node(*one).device == placement.node(*next).device).collect();
    let last_needed = |run: &[NodeId], next: &[NodeId]| {
        let inputs = |id: &NodeId| graph.node(*id).inputs.iter().filter_map(|input| producers[input.index()]);
        let needed = next.iter().flat_map(|id| before[id.index()].iter().copied().chain(inputs(id)));
        needed.filter(|id| run.binary_search(id).is_ok()).max()
    };
    let mut ends = vec![false; graph.nodes().len()];
    for pair in runs.windows(2) {
        let Some(last) = last_needed(pair[0], pair[1]) else { continue };
        let mut behind = pair[0].iter().filter(|id| **id > last);
        ends[last.index()] = behind.any(|id| is_heavy(graph, *id));
    }
    ends
}

/// The node that computes each tensor's contents, views looked through.
pub(crate) fn producers(graph: &Graph) -> Vec<Option<NodeId>> {
    let mut producers = vec![None; graph.tensors().len()];
    for id in graph.node_ids() {
        let node = graph.node(id);
        producers[node.output.index()] =
            if node.op.is_view() { producers[node.inputs[0].index()] } else { Some(id) };
    }
    producers
}

impl Schedule {
    /// The numbers of all splits.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = SplitId> + use<> {
        (0..self.splits.len()).map(SplitId::new)
    }

    /// For each split, the last split of each device that has surely ended when it begins.
    pub(crate) fn clocks(&self, devices: usize) -> Vec<Vec<Option<SplitId>>> {
        let mut clocks: Vec<Vec<Option<SplitId>>> = Vec::with_capacity(self.splits.len());
        let mut last_of: Vec<Option<SplitId>> = vec![None; devices];
        for (id, split) in self.ids().zip(&self.splits) {
            let mut clock: Vec<Option<SplitId>> = vec![None; devices];
            let own = last_of[split.device.index()];
            // A wait for a later split, in a schedule made by hand, promises nothing.
            for earlier in split.waits.iter().copied().filter(|wait| *wait < id).chain(own) {
                for (now, then) in clock.iter_mut().zip(&clocks[earlier.index()]) {
                    *now = (*now).max(*then);
                }
                let device = self[earlier].device.index();
                clock[device] = clock[device].max(Some(earlier));
            }
            clocks.push(clock);
            last_of[split.device.index()] = Some(id);
        }
        clocks
    }
}

impl Index<SplitId> for Schedule {
    type Output = Split;

    fn index(&self, id: SplitId) -> &Split {
        &self.splits[id.index()]
    }
}

impl Index<TransferId> for Schedule {
    type Output = Transfer;

    fn index(&self, id: TransferId) -> &Transfer {
        &self.transfers[id.index()]
    }
}

impl Transfer {
    /// Bytes that are copied.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}
