//! Splits and copies as the rules of ggml's scheduler of 2026 give them: what our placement is measured against.

use std::collections::HashSet;

use orlop_backend::{Device, same_type};
use orlop_graph::{Graph, Leaf, Node, NodeId, Op, Origin, TensorId};
use orlop_sched::{Constraints, DeviceId, Machine};

/// Inputs of one split after which it is full.
const INPUTS: usize = 30;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) splits: usize,
    /// Bytes that every run copies.
    pub(crate) bytes: u64,
}

/// Cuts a graph by five passes: pinned by data, expanded along the list of nodes, upgraded or rescued, passed on, cut.
/// The last device stands for the processor.
pub(crate) fn cut(graph: &Graph, machine: &Machine, constraints: &Constraints) -> Cut {
    let mut oracle = Oracle {
        graph,
        machine,
        constraints,
        devices: machine.indices().collect(),
        of: vec![None; graph.tensors().len()],
    };
    oracle.pin();
    oracle.expand();
    oracle.rescue();
    oracle.pass_on();
    oracle.cut()
}

struct Oracle<'a> {
    graph: &'a Graph,
    machine: &'a Machine,
    constraints: &'a Constraints,
    devices: Vec<DeviceId>,
    /// The device of each tensor, by position.
    of: Vec<Option<usize>>,
}

impl Oracle<'_> {
    fn last(&self) -> usize {
        self.devices.len() - 1
    }

    fn computed(&self) -> Vec<NodeId> {
        self.graph.node_ids().filter(|id| !self.graph.node(*id).op.is_view()).collect()
    }

    fn runs(&self, device: usize, node: NodeId) -> bool {
        self.machine.can_run(self.devices[device], self.graph, node)
    }

    /// Whether a device reads what lies in an external tensor's memory.
    fn reads_memory_of(&self, device: usize, tensor: TensorId) -> bool {
        let root = self.graph.tensor(tensor).storage.root;
        let lies = &self.constraints.pinned[&root];
        let device: &dyn Device = &**self.machine.device(self.devices[device]);
        device.buffer_types(orlop_backend::Role::Arena).iter().any(|own| same_type(own, lies))
    }

    /// The best device that reads the memory that a tensor lies in already, and runs the node.
    fn by_memory(&self, tensor: TensorId, node: Option<NodeId>) -> Option<usize> {
        let root = self.graph.tensor(tensor).storage.root;
        self.constraints.pinned.get(&root)?;
        let fits = |device: &usize| {
            self.reads_memory_of(*device, root) && node.is_none_or(|node| self.runs(*device, node))
        };
        (0..self.devices.len()).find(fits)
    }

    fn pin(&mut self) {
        for (id, leaf) in self.graph.leaves() {
            self.of[id.index()] = match leaf {
                Leaf::Input => Some(self.last()),
                _ => self.by_memory(id, None),
            };
        }
        for id in self.graph.node_ids() {
            let Node { op, inputs, output } = self.graph.node(id);
            let chosen = self.by_memory(*output, Some(id)).or_else(|| {
                // Their "weights" are tiny.
                if matches!(op, Op::Rope(_) | Op::FlashAttention(_)) {
                    return None;
                }
                let is_weight = |input: &&TensorId| self.graph.root_leaf(**input) == Some(Leaf::Weight);
                self.by_memory(*inputs.iter().find(is_weight)?, Some(id))
            });
            self.of[output.index()] = chosen;
        }
    }

    fn expand(&mut self) {
        for with_last in [false, true] {
            for up in [false, true] {
                let mut nodes = self.computed();
                if up {
                    nodes.reverse();
                }
                let mut carried = None;
                for id in nodes {
                    let output = self.graph.node(id).output.index();
                    match self.of[output] {
                        Some(device) => carried = Some(device).filter(|d| with_last || *d != self.last()),
                        None => {
                            if let Some(device) = carried.filter(|device| self.runs(*device, id)) {
                                self.of[output] = Some(device);
                            }
                        }
                    }
                }
            }
        }
    }

    fn reads(&self, device: usize, tensor: TensorId) -> bool {
        let root = self.graph.tensor(tensor).storage.root;
        match self.constraints.pinned.contains_key(&root) {
            true => self.reads_memory_of(device, root),
            false => {
                let home = self.of[tensor.index()].or(self.of[root.index()]);
                let arena = |device: usize| self.machine.arena(self.devices[device]);
                home.is_some_and(|home| same_type(arena(home), arena(device)))
            }
        }
    }

    fn rescue(&mut self) {
        for id in self.computed() {
            let node = self.graph.node(id);
            if self.of[node.output.index()].is_some() {
                continue;
            }
            let able = (0..self.devices.len()).filter(|device| self.runs(*device, id));
            let readable = |device: usize| node.inputs.iter().filter(|i| self.reads(device, **i)).count();
            let best = able.max_by_key(|device| (readable(*device), std::cmp::Reverse(*device)));
            self.of[node.output.index()] = best;
        }
    }

    fn pass_on(&mut self) {
        for id in self.graph.node_ids() {
            let node = self.graph.node(id);
            let root = |tensor: TensorId| self.graph.tensor(tensor).storage.root.index();
            let own = self.of[node.output.index()].or(self.of[root(node.output)]);
            self.of[node.output.index()] = own;
            for input in &node.inputs {
                let found = self.of[input.index()].or(self.of[root(*input)]).or(own);
                self.of[input.index()] = found;
            }
        }
    }

    fn cut(&self) -> Cut {
        let mut cut = Cut { splits: 0, bytes: 0 };
        let mut current = None;
        let mut inputs = 0;
        let mut copied: HashSet<(TensorId, usize)> = HashSet::new();
        for id in self.computed() {
            let node = self.graph.node(id);
            let device = self.of[node.output.index()].unwrap();
            let away = |input: &TensorId| !self.reads(device, *input);
            let streams = |input: &TensorId| {
                self.graph.tensor(*input).origin == Origin::Leaf(Leaf::Weight) && away(input)
            };
            let full =
                |input: &TensorId| inputs >= INPUTS && away(input) && !copied.contains(&(*input, device));
            let begins = current != Some(device)
                || (inputs > 0 && node.inputs.iter().any(|input| streams(input) || full(input)));
            if begins {
                cut.splits += 1;
                inputs = 0;
                current = Some(device);
            }
            for input in node.inputs.iter().filter(|input| away(input)) {
                if copied.insert((*input, device)) {
                    inputs += 1;
                    cut.bytes += self.graph.tensor(*input).desc.bytes();
                }
            }
        }
        cut
    }
}
