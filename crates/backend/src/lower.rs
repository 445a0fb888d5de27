//! Segments, the steps that devices make of them, and where their values lie.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use orlop_graph::AccessKind::{Read, Write};
use orlop_graph::{Graph, NodeId, Op, Tensor, TensorDesc, TensorId, may_overwrite};

use crate::{BufferType, Device, DeviceError, NodeQuery, Operand, Reason, Slot, Support, Touch};

/// Nodes that one device runs one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The graph they are of.
    pub graph: &'a Graph,
    /// The nodes, in order.
    pub nodes: &'a [NodeId],
    /// The kind of memory that each tensor of the graph lies in or will lie in.
    pub buffer_types: &'a [Option<Arc<dyn BufferType>>],
    /// For each tensor of the graph, whether it is read outside the segment, is an output, or is observed:
    /// such values are never fused away.
    pub escapes: &'a [bool],
}

/// The tables of a graph's segments, with one entry a tensor: made once, filled by each segment in turn.
#[derive(Debug)]
pub struct SegmentTables {
    buffer_types: Vec<Option<Arc<dyn BufferType>>>,
    escapes: Vec<bool>,
    /// Whether a tensor is a result of the graph, or a result is a view of it.
    result: Vec<bool>,
    /// The entries that the last segment filled.
    filled: Vec<TensorId>,
}

impl SegmentTables {
    /// Tables of a graph, for one segment after the other.
    pub fn new(graph: &Graph) -> SegmentTables {
        let tensors = graph.tensors().len();
        let mut result = vec![false; tensors];
        for id in graph.results() {
            result[id.index()] = true;
            result[graph.tensor(id).storage.root.index()] = true;
        }
        SegmentTables {
            buffer_types: vec![None; tensors],
            escapes: vec![false; tensors],
            result,
            filled: Vec::new(),
        }
    }

    /// Nodes as a segment. `lies` says which kind of memory each tensor lies in; `read_later` which roots are read after
    /// these nodes; `observed` is a result that the caller looks at.
    ///
    /// A tensor escapes if it is a result of the graph, if its root is read later, if it is observed, or if a result or
    /// what is observed is a view of it. That counts for operands, too: they may be read by others after this segment.
    pub fn segment<'a>(
        &'a mut self,
        graph: &'a Graph,
        nodes: &'a [NodeId],
        lies: impl Fn(TensorId) -> Option<Arc<dyn BufferType>>,
        read_later: impl Fn(TensorId) -> bool,
        observed: Option<TensorId>,
    ) -> Segment<'a> {
        for id in self.filled.drain(..) {
            self.buffer_types[id.index()] = None;
            self.escapes[id.index()] = false;
        }
        let seen = observed.map(|seen| [seen, graph.tensor(seen).storage.root]);
        for id in nodes.iter().flat_map(|node| {
            let node = graph.node(*node);
            node.inputs.iter().chain([&node.output])
        }) {
            self.buffer_types[id.index()] = lies(*id);
            self.escapes[id.index()] = self.result[id.index()]
                || read_later(graph.tensor(*id).storage.root)
                || seen.is_some_and(|seen| seen.contains(id));
            self.filled.push(*id);
        }
        Segment { graph, nodes, buffer_types: &self.buffer_types, escapes: &self.escapes }
    }
}

/// What activations may be rounded to for products with quantized weights. A device may round less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// To 8-bit integers with a scale for each 32, as llama.cpp does: the fastest.
    Int8,
    /// To 16-bit integers with a scale for each 32, where the device has kernels for these; else as `Int8`.
    #[default]
    Int16,
    /// Activations stay as they are.
    F32,
}

/// Choices that lowering depends on, beside the segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LowerOptions {
    /// Most threads a run may ask for; scratch is sized for them. Default 1.
    pub max_threads: usize,
    /// Default [`Precision::Int16`].
    pub precision: Precision,
    /// Whether nodes may be fused into one step. Default yes.
    pub fusion: bool,
}

impl Default for LowerOptions {
    fn default() -> LowerOptions {
        LowerOptions { max_threads: 1, precision: Precision::Int16, fusion: true }
    }
}

/// A segment as its device runs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// What it was lowered with.
    pub options: LowerOptions,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Memory that steps need beside the graph's tensors.
    pub temporaries: Vec<Temporary>,
}

impl Steps {
    /// Steps, and the names and sizes of the temporaries that they name by number: each lives from the first step that
    /// touches it to the last.
    pub fn new(options: LowerOptions, steps: Vec<Step>, temporaries: Vec<(String, u64)>) -> Steps {
        let mut lives = vec![None; temporaries.len()];
        for (index, step) in steps.iter().enumerate() {
            for value in step.reads.iter().chain(&step.writes) {
                if let StepValue::Temporary(number) = value {
                    let (_, last) = lives[*number].get_or_insert((index, index));
                    *last = index;
                }
            }
        }
        let temporary = |((name, bytes), life): ((String, u64), Option<(usize, usize)>)| {
            let (first, last) = life.unwrap_or((0, 0));
            Temporary { name, bytes, first, last }
        };
        let temporaries = temporaries.into_iter().zip(lives).map(temporary).collect();
        Steps { options, steps, temporaries }
    }

    /// The same steps in another order: at each position, the step of that number.
    ///
    /// # Panics
    /// If the order is not one of these steps.
    pub fn in_order(&self, order: &[usize]) -> Steps {
        let mut position = vec![0; self.steps.len()];
        order.iter().enumerate().for_each(|(at, step)| position[*step] = at);
        let mut temporaries = self.temporaries.clone();
        for temporary in &mut temporaries {
            let ends = [position[temporary.first], position[temporary.last]];
            (temporary.first, temporary.last) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        }
        let steps: Vec<Step> = order.iter().map(|step| self.steps[*step].clone()).collect();
        for (at, step) in steps.iter().enumerate() {
            for value in step.reads.iter().chain(&step.writes) {
                if let StepValue::Temporary(number) = value {
                    let temporary = &mut temporaries[*number];
                    (temporary.first, temporary.last) = (temporary.first.min(at), temporary.last.max(at));
                }
            }
        }
        Steps { options: self.options.clone(), steps, temporaries }
    }
}

/// One kernel's work. All that it reads lives to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The device's name for the kernel; `compile` goes by it.
    pub kernel: Cow<'static, str>,
    /// The nodes it computes. Results that are in no step's `writes` exist nowhere in memory.
    pub nodes: Vec<NodeId>,
    /// What it reads, in slot order, with repeats.
    pub reads: Vec<StepValue>,
    /// What it writes.
    pub writes: Vec<StepValue>,
    /// Which write may take the place of which read, if their layouts agree.
    pub may_overwrite: Vec<Overwrite>,
}

impl Step {
    /// The plainest step of a node: the kernel named after the op.
    pub fn plain(graph: &Graph, id: NodeId) -> Step {
        let node = graph.node(id);
        Step {
            kernel: node.op.to_name(),
            nodes: vec![id],
            reads: node.inputs.iter().copied().map(StepValue::Tensor).collect(),
            writes: vec![StepValue::Tensor(node.output)],
            may_overwrite: overwrites(graph, id),
        }
    }
}

/// A value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepValue {
    /// A tensor of the graph, views included.
    Tensor(TensorId),
    /// One of [`Steps::temporaries`], by position.
    Temporary(usize),
}

/// Positions in [`Step::writes`] and [`Step::reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overwrite {
    /// The write.
    pub write: usize,
    /// The read whose place it may take.
    pub read: usize,
}

/// Memory that lives from one step's beginning to another's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Temporary {
    /// A name for people.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// First step that uses it.
    pub first: usize,
    /// Last step that uses it.
    pub last: usize,
}

/// Where everything lies that steps touch.
#[derive(Clone, Debug)]
pub struct Bindings {
    /// The graph the steps are of.
    pub graph: Graph,
    /// The place of each tensor that the steps touch; a view's is its own, not its root's.
    pub tensors: HashMap<TensorId, Slot>,
    /// The place of each temporary.
    pub temporaries: Vec<Slot>,
}

impl Bindings {
    /// Where a value lies.
    ///
    /// # Errors
    /// [`DeviceError::Unbound`] if it has no place.
    pub fn slot(&self, value: StepValue) -> Result<&Slot, DeviceError> {
        let slot = match value {
            StepValue::Tensor(id) => self.tensors.get(&id),
            StepValue::Temporary(index) => self.temporaries.get(index),
        };
        slot.ok_or_else(|| DeviceError::Unbound {
            value: match value {
                StepValue::Tensor(id) => {
                    self.graph.get(id).map_or_else(|| id.to_string(), |t| t.name.clone())
                }
                StepValue::Temporary(index) => format!("temporary {index}"),
            },
        })
    }
}

impl Segment<'_> {
    /// Asks a device about one of the segment's nodes.
    pub fn support(&self, device: &dyn Device, node: NodeId) -> Support {
        let node = self.graph.node(node);
        let operand = |id: TensorId| Operand {
            desc: &self.graph.tensor(id).desc,
            buffer_type: self.buffer_types.get(id.index()).and_then(Option::as_ref),
        };
        let inputs: Vec<Operand<'_>> = node.inputs.iter().map(|id| operand(*id)).collect();
        device.supports(&NodeQuery { op: &node.op, inputs: &inputs, output: operand(node.output) })
    }

    /// The plain lowering: one step per node, the kernel named after the op, views left out. Devices start from it, and fuse
    /// and add temporaries with a [`crate::StepEditor`].
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for the first node that the device refuses.
    pub fn one_step_per_node(
        &self,
        device: &dyn Device,
        options: &LowerOptions,
    ) -> Result<Steps, DeviceError> {
        let mut steps = Vec::with_capacity(self.nodes.len());
        for id in self.nodes {
            let node = self.graph.node(*id);
            if let Support::No(reason) = self.support(device, *id) {
                return Err(self.unsupported(device, *id, reason));
            }
            if !node.op.is_view() {
                steps.push(Step::plain(self.graph, *id));
            }
        }
        Ok(Steps { options: options.clone(), steps, temporaries: Vec::new() })
    }

    /// Refuses nodes that read, at other offsets, bytes which they also write: a device whose threads run in no order cannot
    /// run them, as some would read what others have written.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for the first such node.
    pub fn refuse_overlaps(&self, device: &dyn Device) -> Result<(), DeviceError> {
        let found = self.nodes.iter().find_map(|id| Some((*id, overlapping_operand(self.graph, *id)?)));
        found.map_or(Ok(()), |(id, operand)| Err(self.unsupported(device, id, Reason::Strides { operand })))
    }

    fn unsupported(&self, device: &dyn Device, node: NodeId, reason: Reason) -> DeviceError {
        let node = self.graph.node(node);
        DeviceError::Unsupported {
            device: device.name().to_owned(),
            op: node.op.name().to_owned(),
            tensor: self.graph.tensor(node.output).name.clone(),
            reason,
        }
    }
}

/// The first operand of a write into another tensor's storage that shares bytes with what is written.
fn overlapping_operand(graph: &Graph, node: NodeId) -> Option<usize> {
    let node = graph.node(node);
    let target = node.op.storage_operand().filter(|_| !node.op.is_view())?;
    let written = graph.tensor(node.output);
    let range = |tensor: &Tensor| tensor.storage.offset..tensor.storage.offset + tensor.desc.bytes();
    let overlaps = |slot: usize| {
        let read = graph.tensor(node.inputs[slot]);
        let (from, to) = (range(read), range(written));
        // A copy of a tensor to its own place takes each element from where it goes to.
        let stays = node.op == Op::Copy && (read.storage, read.desc) == (written.storage, written.desc);
        let shared = from.start.max(to.start)..from.end.min(to.end);
        read.storage.root == written.storage.root && !shared.is_empty() && !stays
    };
    (0..node.inputs.len()).find(|slot| *slot != target && overlaps(*slot))
}

/// Which operands a node's only result may take the place of.
pub fn overwrites(graph: &Graph, node: NodeId) -> Vec<Overwrite> {
    let node = graph.node(node);
    let desc = |id: TensorId| -> &TensorDesc { &graph.tensor(id).desc };
    if node.op.storage_operand().is_some() {
        return Vec::new();
    }
    let fits = |(slot, input): &(usize, &TensorId)| {
        may_overwrite(&node.op, *slot) && desc(**input) == desc(node.output)
    };
    let slots = node.inputs.iter().enumerate().filter(fits);
    slots.map(|(read, _)| Overwrite { write: 0, read }).collect()
}

/// The buffers that steps touch at their places, and how: what a run must claim.
///
/// # Errors
/// [`DeviceError::Unbound`] if a value has no place.
pub fn touched(steps: &Steps, bindings: &Bindings) -> Result<Vec<Touch>, DeviceError> {
    let mut touched: Vec<Touch> = Vec::new();
    for step in &steps.steps {
        let reads = step.reads.iter().map(|value| (*value, Read));
        for (value, kind) in reads.chain(step.writes.iter().map(|value| (*value, Write))) {
            let buffer = &bindings.slot(value)?.buffer;
            match touched.iter_mut().find(|(known, _)| Arc::ptr_eq(known.gate(), buffer.gate())) {
                Some((_, known)) if kind == Write => *known = Write,
                Some(_) => {}
                None => touched.push((Arc::clone(buffer), kind)),
            }
        }
    }
    Ok(touched)
}
