//! Which memory each weight lies in: a decision per weight, made before anything is allocated.
//!
//! A weight is
//! - *mapped* where it is used from the mapped file, which costs no memory;
//! - *streamed* where it is used from the mapped file because memory does not hold all weights: every run that needs it
//!   reads it from the file again;
//! - *loaded* where it is copied, as it is, to memory of its device;
//! - *repacked* where it is copied in the device's own layout;
//! - *pending* while it has its place but is not loaded or repacked yet: the first run uses it mapped;
//! - *offloaded* where a graph takes it mapped and transfers it, in every run, to a more preferred device that computes
//!   products of many tokens sooner all the same. The graph of one token still uses it where it lies.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{BufferType, Device, MemoryLayout, NodeQuery, Operand, Reason, Role, Support};
use orlop_graph::{Graph, NodeId, TensorDesc, TensorId};
use orlop_sched::{DeviceId, Machine};

use crate::draft::{ModelGraph, WeightContent};
use crate::{Config, Error};

/// Where a weight goes.
#[derive(Clone, Debug)]
pub(crate) struct WeightPlace {
    /// Its name in graphs.
    pub(crate) name: Arc<str>,
    /// Its name in the file.
    pub(crate) source: String,
    pub(crate) content: WeightContent,
    pub(crate) desc: TensorDesc,
    pub(crate) device: DeviceId,
    pub(crate) memory: Arc<dyn BufferType>,
    /// Memory over the mapped file from which its device can use it while it is pending.
    pub(crate) while_pending: Option<Arc<dyn BufferType>>,
    /// Every run reads it from the file.
    pub(crate) streamed: bool,
}

impl WeightPlace {
    /// Bytes that it takes where it lies.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match self.memory.is_borrowed() {
            true => self.desc.bytes(),
            false => self.memory.alloc_bytes(&self.desc),
        }
    }

    /// How much of it a run of some tokens reads, 1 for all.
    pub(crate) fn read_share(&self, config: &Config, tied: bool, tokens: u64) -> f64 {
        match config.experts {
            Some(experts) if self.source.contains("_exps.") => {
                let left = 1.0 - experts.used as f64 / experts.count.max(1) as f64;
                1.0 - left.powf(tokens as f64)
            }
            _ if self.source == "token_embd.weight" && !tied => {
                (tokens as f64 / config.vocabulary.max(1) as f64).min(1.0)
            }
            _ => 1.0,
        }
    }
}

/// Streams weights of devices that keep fewer bytes than theirs: those first of which a token reads least. What a device
/// cannot use from the mapped file is kept.
pub(crate) fn stream_weights(weights: &mut [WeightPlace], config: &Config, kept: &HashMap<DeviceId, u64>) {
    let tied = !weights.iter().any(|weight| weight.source == "output.weight");
    for (device, kept) in kept {
        let can_stream = |weight: &WeightPlace| weight.while_pending.is_some() || weight.memory.is_borrowed();
        let own = || weights.iter().enumerate().filter(|(_, weight)| weight.device == *device);
        let fixed = own().filter(|(_, weight)| !can_stream(weight));
        let mut bytes = fixed.fold(0u64, |sum, (_, weight)| sum.saturating_add(weight.stored_bytes()));
        let mut most_read: Vec<usize> =
            own().filter(|(_, weight)| can_stream(weight)).map(|(index, _)| index).collect();
        let share = |index: &usize| weights[*index].read_share(config, tied, 1);
        most_read.sort_by(|one, other| share(other).total_cmp(&share(one)));
        for index in most_read {
            let weight = &mut weights[index];
            bytes = bytes.saturating_add(weight.stored_bytes());
            if bytes > *kept {
                weight.streamed = true;
                let mapped = weight.while_pending.take();
                weight.memory = mapped.unwrap_or_else(|| Arc::clone(&weight.memory));
            }
        }
    }
}

/// A place for every weight of a model, in the order in which all its graphs use them: where it is wished; what a device
/// cannot use, such as a matrix larger than it can bind, goes to the last device.
pub(crate) fn place_weights(
    machine: &Machine,
    [first, second]: [&ModelGraph; 2],
    last: DeviceId,
) -> Result<Vec<WeightPlace>, Error> {
    let uses = [first, second].map(|graph| Uses::of(&graph.graph));
    let mut places = Vec::with_capacity(first.weights.len());
    for (weight, other) in first.weights.iter().zip(&second.weights) {
        let tensor = first.graph.tensor(weight.leaf);
        let leaves = uses.iter().zip([weight.leaf, other.leaf]);
        // What the file does not have in this form is no part of the mapped file.
        let is_mapped = weight.content == WeightContent::Whole;
        let memory =
            |device: DeviceId| choose_memory(machine.device(device), &tensor.name, is_mapped, leaves.clone());
        let (device, memory) = match memory(weight.device) {
            Ok(memory) => (weight.device, memory),
            Err(refused) => (last, memory(last).map_err(|_| refused)?),
        };
        places.push(WeightPlace {
            name: tensor.name.as_str().into(),
            source: weight.source.clone(),
            content: weight.content.clone(),
            desc: tensor.desc,
            device,
            while_pending: is_mapped
                .then(|| memory_while_pending(machine.device(device), &memory, leaves))
                .flatten(),
            memory,
            streamed: false,
        });
    }
    Ok(places)
}

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
fn choose_memory<'a>(
    device: &Arc<dyn Device>,
    name: &str,
    is_mapped: bool,
    leaves: impl Iterator<Item = (&'a Uses<'a>, TensorId)> + Clone,
) -> Result<Arc<dyn BufferType>, Error> {
    let mut usable = device
        .buffer_types(Role::Weight)
        .iter()
        .filter(|memory| is_mapped || !memory.is_borrowed())
        .peekable();
    let arena = if usable.peek().is_none() { device.buffer_types(Role::Arena) } else { &[] };
    let mut refused = None;
    for memory in usable.chain(arena) {
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

/// Memory over the mapped file from which a device can do the same as from memory of its own that a weight is loaded or
/// repacked into. Only the host's processor reads mapped files.
fn memory_while_pending<'a>(
    device: &Arc<dyn Device>,
    memory: &Arc<dyn BufferType>,
    leaves: impl Iterator<Item = (&'a Uses<'a>, TensorId)> + Clone,
) -> Option<Arc<dyn BufferType>> {
    if memory.is_borrowed() || !memory.is_host() {
        return None;
    }
    let mapped = mapped_memory(device)?;
    refusal(device, mapped, leaves).is_none().then(|| Arc::clone(mapped))
}

/// A device's memory over mapped files.
fn mapped_memory(device: &Arc<dyn Device>) -> Option<&Arc<dyn BufferType>> {
    let is_mapped =
        |memory: &&Arc<dyn BufferType>| memory.is_borrowed() && memory.layout() == MemoryLayout::Plain;
    device.buffer_types(Role::Weight).iter().find(is_mapped)
}

/// Why a device refuses something that graphs do with a weight.
fn refusal<'a>(
    device: &Arc<dyn Device>,
    memory: &Arc<dyn BufferType>,
    mut leaves: impl Iterator<Item = (&'a Uses<'a>, TensorId)>,
) -> Option<Reason> {
    leaves.find_map(|(uses, leaf)| uses.refusal(&**device, memory, leaf))
}

/// The memory over the mapped file from which a graph offloads a weight, if it does.
pub(crate) fn offloaded_from<'a>(
    machine: &'a Machine,
    uses: &Uses<'_>,
    leaf: TensorId,
    weight: &WeightPlace,
) -> Option<&'a Arc<dyn BufferType>> {
    // What lies plainly can be transferred from where it is.
    if weight.memory.layout() == MemoryLayout::Plain || weight.content != WeightContent::Whole {
        return None;
    }
    let mapped = mapped_memory(machine.device(weight.device))?;
    let (graph, users) = (uses.graph, uses.by_root[leaf.index()].as_slice());
    let better = |device: DeviceId| {
        !users.is_empty()
            && users.iter().all(|node| is_wanted(machine, device, graph, *node))
            && seconds_with_transfer(machine, device, graph, leaf, users)
                < seconds(machine, weight.device, graph, users)
    };
    machine.indices().take(weight.device.index()).any(better).then_some(mapped)
}

fn is_wanted(machine: &Machine, device: DeviceId, graph: &Graph, node: NodeId) -> bool {
    let node = graph.node(node);
    let operand = |id: &TensorId| Operand { desc: &graph.tensor(*id).desc, buffer_type: None };
    let inputs: Vec<Operand<'_>> = node.inputs.iter().map(operand).collect();
    let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(&node.output) };
    machine.device(device).supports(&query) == Support::Yes { wants_offload: true }
}

fn seconds(machine: &Machine, device: DeviceId, graph: &Graph, nodes: &[NodeId]) -> f64 {
    nodes.iter().map(|node| machine.speeds(device).node_seconds(graph, *node)).sum()
}

fn seconds_with_transfer(
    machine: &Machine,
    device: DeviceId,
    graph: &Graph,
    weight: TensorId,
    nodes: &[NodeId],
) -> f64 {
    let bytes = graph.tensor(weight).desc.bytes();
    seconds(machine, device, graph, nodes) + machine.speeds(device).transfer_seconds(bytes)
}
