//! A client's graph as a program of a device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{
    Bindings, Buffer, Claims, Device, DeviceError, LowerOptions, NodeQuery, Operand, Precision, Program,
    Queue, Role, RunOptions, SegmentTables, Slot, Support,
};
use orlop_graph::{Graph, GraphBuilder, Leaf, NodeId, Op, TensorId};
use orlop_plan::{BufferSpec, Problem, SolveOptions, solve};

use super::check::{CheckedNode, Spot, check};
use super::packed::{PackedWeight, PackedWeights};
use super::store::Store;
use super::turns::Turns;
use super::{Refusal, RpcLimits};
use crate::codec::{GraphMessage, OpNumbers};

/// A graph that can be run again.
pub(super) struct Compiled {
    /// Nothing to compute has no program.
    program: Option<Arc<dyn Program>>,
    weights: Vec<Arc<PackedWeight>>,
    queue: Mutex<Box<dyn Queue>>,
    scratch_bytes: u64,
}

impl Compiled {
    /// Checks, lowers and compiles a message. `left` is what its scratch may take, and what copies of its weights may.
    #[allow(clippy::too_many_arguments)] // what a session has
    pub(super) fn new(
        device: &Arc<dyn Device>,
        number: usize,
        store: &Store,
        message: &GraphMessage,
        numbers: OpNumbers,
        limits: &RpcLimits,
        packed: &mut PackedWeights,
        left: u64,
    ) -> Result<Compiled, Refusal> {
        let nodes = check(message, store, number, numbers)?;
        let queue = Mutex::new(device.queue()?);
        if nodes.is_empty() {
            return Ok(Compiled { program: None, weights: Vec::new(), queue, scratch_bytes: 0 });
        }
        // Without scratch nothing can be computed, so copies leave half of the memory to it: of the client's, and of what the
        // device has, which a client without a quota would fill with them.
        let free = device.facts().memory.map_or(u64::MAX, |memory| memory.free);
        let before = packed.bytes(store, number);
        let weights = packed.of_nodes(&**device, store, &nodes, left.min(free) / 2)?;
        let left = left - (packed.bytes(store, number) - before);
        let mut draft = Draft { store, builder: GraphBuilder::new(), slots: HashMap::new() };
        let mut aside = Vec::new();
        for (node, weight) in nodes.iter().zip(&weights) {
            draft.node(node, weight.as_deref(), &mut aside)?;
        }
        let Draft { builder, mut slots, .. } = draft;
        let weights = weights.into_iter().flatten().collect();
        let graph = builder.build().map_err(|_| Refusal::Graph("it cannot be built"))?;
        supported(&**device, &graph, &nodes)?;
        let memory = device.buffer_types(Role::Arena).first().ok_or(Refusal::NoGraph(number as u32))?;
        let align = memory.alignment();
        // Results that are computed elsewhere live until the step behind copies them; one place serves all.
        let aside_bytes = aside.iter().map(|id| graph.tensor(*id).desc.bytes()).max().unwrap_or(0);
        let order: Vec<NodeId> = graph.node_ids().collect();
        let options = LowerOptions { max_threads: limits.threads, precision: Precision::Int8, fusion: false };
        let mut tables = SegmentTables::new(&graph);
        let lies = |id: TensorId| {
            Some(slots.get(&id).map_or(Arc::clone(memory), |slot| Arc::clone(slot.buffer.buffer_type())))
        };
        let steps = device.lower(&tables.segment(&graph, &order, lies, |_| true, None), &options)?;
        let mut problem = Problem::default();
        for temporary in &steps.temporaries {
            let life = temporary.first as u64..temporary.last as u64 + 1;
            let added = problem.push(BufferSpec::new(temporary.bytes, align, life));
            added.map_err(|_| Refusal::Graph("its scratch cannot be planned"))?;
        }
        let solved = solve(&problem, &SolveOptions::default());
        let plan = solved.map_err(|_| Refusal::Graph("its scratch cannot be planned"))?;
        let begin = aside_bytes.next_multiple_of(align);
        let bytes = begin.saturating_add(plan.peak);
        if bytes > left {
            return Err(Refusal::Quota { bytes });
        }
        let scratch = Arc::clone(memory).allocate(bytes)?;
        let at = |offset| Slot { buffer: Arc::clone(&scratch), offset };
        slots.extend(aside.into_iter().map(|id| (id, at(0))));
        let temporaries = plan.places.iter().map(|place| at(begin + place.offset)).collect();
        let program = device.compile(&steps, &Bindings { graph, tensors: slots, temporaries })?;
        Ok(Compiled { program: Some(program), weights, queue, scratch_bytes: bytes })
    }

    /// Bytes that its temporaries take.
    pub(super) fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }

    /// Computes it, when it is its turn.
    pub(super) fn run(&self, turns: &Turns) -> Result<(), DeviceError> {
        let Some(program) = &self.program else { return Ok(()) };
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let _turn = turns.take();
        self.weights.iter().try_for_each(|weight| weight.refresh())?;
        let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind)))?;
        let submitted = submit(&mut **queue, program, &claims);
        // Work may still be under way after an error, and holds its claims until it is done.
        submitted.and(queue.sync())
    }

    /// Whether a buffer is one that it reads or writes.
    pub(super) fn touches(&self, buffer: &dyn Buffer) -> bool {
        let touches = self.program.as_ref().map(|program| program.touches()).unwrap_or_default();
        touches.iter().any(|(touched, _)| Arc::ptr_eq(touched.gate(), buffer.gate()))
    }
}

#[allow(unsafe_code)]
fn submit(queue: &mut dyn Queue, program: &Arc<dyn Program>, claims: &Claims) -> Result<(), DeviceError> {
    // SAFETY: `submit` asks that no other queue has work under these claims: they were just taken, and only this queue gets
    // them; and that a result lies on an operand only where the step may overwrite it: `check` computes others aside.
    unsafe { queue.submit(program, claims, &RunOptions::default()) }
}

/// A graph in the making: each operand is a leaf of its own, bound to its place.
struct Draft<'a> {
    store: &'a Store,
    builder: GraphBuilder,
    slots: HashMap<TensorId, Slot>,
}

impl Draft<'_> {
    fn leaf(&mut self, spot: &Spot) -> Result<TensorId, Refusal> {
        let id = self.builder.leaf(Leaf::State, "", Ok(spot.desc));
        self.bind(id, spot)?;
        Ok(id)
    }

    fn bind(&mut self, id: TensorId, spot: &Spot) -> Result<(), Refusal> {
        let buffer = Arc::clone(&self.store.get(spot.buffer)?.buffer);
        self.slots.insert(id, Slot { buffer, offset: spot.offset });
        Ok(())
    }

    fn node(
        &mut self,
        node: &CheckedNode,
        weight: Option<&PackedWeight>,
        aside: &mut Vec<TensorId>,
    ) -> Result<(), Refusal> {
        let operands = node.operands.iter().map(|operand| self.leaf(operand));
        let operands: Vec<TensorId> = operands.collect::<Result<_, _>>()?;
        if let (Some(first), Some(weight)) = (operands.first(), weight) {
            self.slots.insert(*first, weight.place().slot().clone());
        }
        let result = self.builder.node(node.op.clone(), &operands);
        self.builder.name(result, node.name.as_str());
        if !node.aside {
            return self.bind(result, &node.result);
        }
        aside.push(result);
        let target = self.leaf(&node.result)?;
        let copied = self.builder.node(Op::Copy, &[result, target]);
        self.bind(copied, &node.result)
    }
}

/// Every node must be one that the device takes.
fn supported(device: &dyn Device, graph: &Graph, nodes: &[CheckedNode]) -> Result<(), Refusal> {
    for node in graph.nodes() {
        let operand = |id: TensorId| Operand { desc: &graph.tensor(id).desc, buffer_type: None };
        let inputs: Vec<Operand<'_>> = node.inputs.iter().copied().map(operand).collect();
        let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(node.output) };
        if let Support::No(reason) = device.supports(&query) {
            let tensor = graph.tensor(node.output).name.clone();
            let number = nodes.iter().find(|known| known.name == tensor).map_or(0, |known| known.number);
            return Err(Refusal::Node { tensor, op: number, reason: format!("{}: {reason}", node.op) });
        }
    }
    Ok(())
}
