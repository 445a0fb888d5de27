//! Runs of a graph with a buffer for each tensor: the results that planned runs must have.

use std::sync::Arc;

use orlop_backend::{
    Bindings, Buffer, BufferType, Claim, Claims, Device, DeviceError, LowerOptions, Role, RunOptions,
    SegmentTables, Slot,
};
use orlop_graph::{AccessKind, Graph, Leaf, NodeId, Origin, TensorId};

use crate::execute::gather;
use crate::interpreter::numbers;

/// Runs a graph once on a device with a separate buffer for every tensor that owns storage: no plan, nothing shared,
/// and every value can be read afterwards. Planned runs are compared with it.
///
/// `feeds` are the bytes of leaves, gaps included. Inputs and weights must be fed; persistent leaves and states
/// begin as zeros where they are not.
///
/// # Errors
/// [`DeviceError::Unbound`] for an input or weight without a feed and for a feed of something else than a leaf,
/// [`DeviceError::WrongLength`] for a feed of another length than its leaf, and what the device says.
pub fn run_unplanned(
    device: &Arc<dyn Device>,
    graph: &Graph,
    feeds: &[(TensorId, Vec<u8>)],
) -> Result<RunOutputs, DeviceError> {
    run_unplanned_with(device, graph, feeds, &UnplannedOptions::default())
}

/// Choices of [`run_unplanned_with`].
#[derive(Clone, Debug, Default)]
pub struct UnplannedOptions {
    /// How the graph is lowered.
    pub lower: LowerOptions,
    /// How it is run.
    pub run: RunOptions,
    /// Which values can be read afterwards. Default: all.
    pub observe: Observe,
}

/// Which values a device must not fuse away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Observe {
    /// Every tensor of the graph.
    #[default]
    Everything,
    /// The graph's results; others hold zeros if the device had no use for their memory.
    Results,
}

/// As [`run_unplanned`], with choices.
///
/// # Errors
/// As [`run_unplanned`].
pub fn run_unplanned_with(
    device: &Arc<dyn Device>,
    graph: &Graph,
    feeds: &[(TensorId, Vec<u8>)],
    options: &UnplannedOptions,
) -> Result<RunOutputs, DeviceError> {
    let Some(buffer_type) = device.buffer_types(Role::Arena).first() else {
        return Err(DeviceError::Unbound { value: format!("the arena of {}", device.name()) });
    };
    let slots = allocate(graph, buffer_type)?;
    fill(graph, &slots, feeds)?;

    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let mut tables = SegmentTables::new(graph);
    let observed = options.observe == Observe::Everything;
    let lies = |_| Some(Arc::clone(buffer_type));
    let segment = tables.segment(graph, &nodes, lies, |_| observed, None);
    let steps = device.lower(&segment, &options.lower)?;
    let mut temporaries = Vec::with_capacity(steps.temporaries.len());
    for temporary in &steps.temporaries {
        let buffer = Arc::clone(buffer_type).allocate(temporary.bytes)?;
        temporaries.push(Slot { buffer, offset: 0 });
    }
    let tensors = graph.tensor_ids().zip(slots.iter().cloned()).collect();
    let program = device.compile(&steps, &Bindings { graph: graph.clone(), tensors, temporaries })?;
    let mut queue = device.queue()?;
    let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind)))?;
    // SAFETY: `submit` asks that other queues do not interfere under the same claims, and there are none; and that results lie
    // on nothing that is still needed: every storage has memory of its own.
    let submitted = unsafe { queue.submit(&program, &claims, &options.run) };
    // Work may still be under way after an error, and holds its claims until it is done.
    let finished = queue.sync();
    submitted.and(finished)?;
    Ok(RunOutputs { graph: graph.clone(), slots })
}

/// A place for every tensor: a buffer for each root, views within it.
fn allocate(graph: &Graph, buffer_type: &Arc<dyn BufferType>) -> Result<Vec<Slot>, DeviceError> {
    let mut slots: Vec<Slot> = Vec::with_capacity(graph.tensors().len());
    for id in graph.tensor_ids() {
        let tensor = graph.tensor(id);
        // Roots come before their views, as operands come before results.
        let buffer = match slots.get(tensor.storage.root.index()) {
            Some(root) => Arc::clone(&root.buffer),
            None => Arc::clone(buffer_type).allocate(buffer_type.alloc_bytes(&tensor.desc))?,
        };
        slots.push(Slot { buffer, offset: tensor.storage.offset });
    }
    Ok(slots)
}

fn fill(graph: &Graph, slots: &[Slot], feeds: &[(TensorId, Vec<u8>)]) -> Result<(), DeviceError> {
    let is_leaf = |id: TensorId| graph.get(id).is_some_and(|t| matches!(t.origin, Origin::Leaf(_)));
    if let Some((stray, _)) = feeds.iter().find(|(id, _)| !is_leaf(*id)) {
        return Err(DeviceError::Unbound { value: stray.to_string() });
    }
    for (id, leaf) in graph.leaves() {
        let tensor = graph.tensor(id);
        let buffer: &dyn Buffer = &*slots[id.index()].buffer;
        let claim = Claim::take(buffer, AccessKind::Write)?;
        let Some((_, bytes)) = feeds.iter().rfind(|(fed, _)| *fed == id) else {
            if matches!(leaf, Leaf::Input | Leaf::Weight) {
                return Err(DeviceError::Unbound { value: tensor.name.clone() });
            }
            buffer.fill(&claim, 0..buffer.bytes(), 0)?;
            continue;
        };
        let (expected, given) = (tensor.desc.bytes(), bytes.len() as u64);
        if expected != given {
            return Err(DeviceError::WrongLength { tensor: tensor.name.clone(), expected, given });
        }
        buffer.write(&claim, 0, bytes)?;
    }
    Ok(())
}

/// What an unplanned run left in memory. Tensors that share storage show what was written last.
#[derive(Clone, Debug)]
pub struct RunOutputs {
    graph: Graph,
    slots: Vec<Slot>,
}

impl RunOutputs {
    /// A tensor's elements, packed: in element order, without gaps.
    ///
    /// # Errors
    /// [`DeviceError::Unbound`] if the tensor is not the graph's.
    pub fn bytes(&self, tensor: TensorId) -> Result<Vec<u8>, DeviceError> {
        let found = self.graph.get(tensor).zip(self.slots.get(tensor.index()));
        let (found, slot) = found.ok_or_else(|| DeviceError::Unbound { value: tensor.to_string() })?;
        let claim = Claim::take(&*slot.buffer, AccessKind::Read)?;
        gather(&found.desc, |at, bytes| slot.buffer.read(&claim, slot.offset + at, bytes))
    }

    /// A tensor's elements as numbers.
    ///
    /// # Errors
    /// As [`RunOutputs::bytes`], and [`DeviceError::Unsupported`] for a type without a codec.
    pub fn f64s(&self, tensor: TensorId) -> Result<Vec<f64>, DeviceError> {
        numbers(&self.graph, tensor, &self.bytes(tensor)?)
    }

    /// As [`RunOutputs::f64s`], rounded to `f32`.
    ///
    /// # Errors
    /// As [`RunOutputs::f64s`].
    pub fn f32s(&self, tensor: TensorId) -> Result<Vec<f32>, DeviceError> {
        Ok(self.f64s(tensor)?.into_iter().map(|value| value as f32).collect())
    }
}
