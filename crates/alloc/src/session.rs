use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Claims, Device, LowerOptions, Program, Queue, Role, RunOptions, Segment, Slot,
    StepValue, Steps, StoredTensor,
};
use orlop_graph::{Graph, Leaf, NodeId, Origin, TensorDesc, TensorId};

use crate::arena::Arenas;
use crate::graph_usage::{Homes, Lowered, usage_of};
use crate::inputs::{Inputs, get_whole, leaves_of, set_whole, unbound};
use crate::{
    ArenaId, ArenaInfo, Error, Externals, Growth, MemoryPlan, PlanOptions, SetTensor, StepOrder, TensorSet,
    ValueId, plan_memory, plan_reordered,
};

/// Runs graphs on one device, all of them in one arena that is as large as the largest needs.
///
/// The arena holds one graph's values at a time: setting inputs of a graph ends what another one left there,
/// and reading results comes before setting the next inputs. Weights and states lie outside ([`Externals`]),
/// persistent leaves beside the arena.
pub struct Session {
    device: Arc<dyn Device>,
    queue: Box<dyn Queue>,
    options: SessionOptions,
    arenas: Arenas,
    prepared: Vec<Prepared>,
    /// The plan whose results are in the arena.
    results_of: Option<PlanId>,
}

/// Choices of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// How graphs are lowered.
    pub lower: LowerOptions,
    /// How memory is planned.
    pub plan: PlanOptions,
    /// How the arena grows.
    pub growth: Growth,
    /// Whether steps may change places.
    pub order: StepOrder,
}

/// A graph that a session has prepared; prints as `p0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(usize);

impl PlanId {
    /// Index for side tables with one entry a prepared graph.
    pub fn index(self) -> usize {
        self.0
    }
}

impl fmt::Debug for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

struct Prepared {
    graph: Arc<Graph>,
    steps: Steps,
    plan: Arc<MemoryPlan>,
    externals: Externals,
    persistent: Vec<(TensorId, StoredTensor)>,
    persistent_bytes: u64,
    /// Compiled at the first run after the arena was made.
    program: Option<Arc<dyn Program>>,
    inputs: Inputs,
}

impl Session {
    /// A session on a device, with the device's best memory for arenas.
    ///
    /// # Errors
    /// [`Error::NoBuffers`] if the device has none, and what keeps it from making a queue.
    pub fn new(device: Arc<dyn Device>, options: SessionOptions) -> Result<Session, Error> {
        let arena = device.buffer_types(Role::Arena).first().cloned().ok_or(Error::NoBuffers)?;
        let queue = device.queue()?;
        Ok(Session {
            device,
            queue,
            options,
            arenas: Arenas::new(vec![arena]),
            prepared: Vec::new(),
            results_of: None,
        })
    }

    /// Lowers and plans a graph, and makes room for it.
    ///
    /// # Errors
    /// [`Error::MissingExternal`], [`Error::ExternalMismatch`], what the device or the planner refuses, and
    /// [`Error::AllocFailed`]; the session is then as it was, unless it grows by [`Growth::Replace`]: then the
    /// graphs prepared before get their room back when they are used next, or say that there is none.
    pub fn prepare(&mut self, graph: &Arc<Graph>, externals: &Externals) -> Result<PlanId, Error> {
        externals.check(graph)?;
        let arena_type = Arc::clone(&self.arenas.types()[0]);
        let (steps, plan) = lower_and_plan(&*self.device, graph, externals, &arena_type, &self.options)?;
        let leaves: Vec<TensorId> = leaves_of(graph, Leaf::Persistent).collect();
        let set: Vec<SetTensor> = leaves
            .iter()
            .map(|id| SetTensor::new(graph.tensor(*id).name.as_str(), graph.tensor(*id).desc))
            .collect();
        let persistent = TensorSet::allocate(&arena_type, &set)?;
        self.make_room_for(&plan)?;
        self.prepared.push(Prepared {
            inputs: Inputs::of(graph),
            graph: Arc::clone(graph),
            steps,
            plan,
            externals: externals.clone(),
            persistent_bytes: persistent.bytes(),
            persistent: leaves.into_iter().zip(persistent.tensors().iter().cloned()).collect(),
            program: None,
        });
        Ok(PlanId(self.prepared.len() - 1))
    }

    /// Sets an input or a persistent leaf, all of it.
    ///
    /// # Errors
    /// [`Error::NotInput`], [`Error::UnknownPlan`], and [`orlop_backend::DeviceError::WrongLength`] and its like.
    pub fn set(&mut self, plan: PlanId, input: TensorId, bytes: &[u8]) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        let tensor = prepared.tensor(input)?;
        if let Some((_, stored)) = prepared.persistent.iter().find(|(id, _)| *id == input) {
            return set_whole(stored, bytes);
        }
        if tensor.origin != Origin::Leaf(Leaf::Input) {
            return Err(Error::NotInput { tensor: tensor.name.clone() });
        }
        self.make_room(plan)?;
        let stored = self.in_arena(self.get_prepared(plan)?, input)?;
        set_whole(&stored, bytes)?;
        self.results_of = None;
        for (index, prepared) in self.prepared.iter_mut().enumerate() {
            if index == plan.0 {
                prepared.inputs.set(input);
            } else {
                prepared.inputs.forget();
            }
        }
        Ok(())
    }

    /// Runs a graph once and waits for it.
    ///
    /// # Errors
    /// [`Error::InputNotSet`], [`orlop_backend::DeviceError::Busy`] if somebody else uses memory that the graph needs, and what
    /// the run itself meets; inputs must be set anew then.
    pub fn run(&mut self, plan: PlanId, options: &RunOptions) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        prepared.inputs.check(&prepared.graph)?;
        self.make_room(plan)?;
        let prepared = self.get_prepared(plan)?;
        let program = match &prepared.program {
            Some(program) => Arc::clone(program),
            None => {
                let program = self.device.compile(&prepared.steps, &self.bindings(prepared)?)?;
                self.prepared[plan.0].program = Some(Arc::clone(&program));
                program
            }
        };
        let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind)))?;
        for prepared in &mut self.prepared {
            prepared.inputs.forget();
        }
        self.results_of = None;
        // SAFETY: `submit` asks that no other queue touches this program's bytes under the same claims: they were made
        // for this call, and this session's one queue is the only one to see them. And it asks that results lie on
        // nothing that is still needed: the plan sees to that, from steps whose overwrites were checked against the
        // graph; of fused steps, `Device::lower` answers for what it offers.
        unsafe { self.queue.submit(&program, &claims, options) }?;
        self.queue.sync()?;
        self.results_of = Some(plan);
        Ok(())
    }

    /// Reads an output, a persistent leaf or a view of one, all of it.
    ///
    /// # Errors
    /// [`Error::NotOutput`], [`Error::NotRun`], and [`orlop_backend::DeviceError::WrongLength`] and its like.
    pub fn get(&self, plan: PlanId, output: TensorId, bytes: &mut [u8]) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        let tensor = prepared.tensor(output)?;
        let name = || tensor.name.clone();
        let root_leaf = prepared.graph.root_leaf(output);
        let kept_outside = matches!(root_leaf, Some(Leaf::Persistent | Leaf::Weight | Leaf::State));
        if !kept_outside && !prepared.graph.results().contains(&output) {
            return Err(Error::NotOutput { tensor: name() });
        }
        if !kept_outside && self.results_of != Some(plan) {
            return Err(Error::NotRun { tensor: name() });
        }
        let stored = if kept_outside { prepared.outside(output)? } else { self.in_arena(prepared, output)? };
        get_whole(&stored, bytes)
    }

    /// The plan of a prepared graph.
    ///
    /// # Errors
    /// [`Error::UnknownPlan`].
    pub fn memory_plan(&self, plan: PlanId) -> Result<&Arc<MemoryPlan>, Error> {
        Ok(&self.get_prepared(plan)?.plan)
    }

    /// Bytes of the arena.
    pub fn arena_bytes(&self) -> u64 {
        self.arenas.bytes(0).unwrap_or(0)
    }

    /// Bytes of persistent leaves.
    pub fn persistent_bytes(&self) -> u64 {
        self.prepared.iter().map(|prepared| prepared.persistent_bytes).sum()
    }

    /// Room for a prepared plan, if a growth that failed has taken it away.
    fn make_room(&mut self, plan: PlanId) -> Result<(), Error> {
        let plan = Arc::clone(&self.get_prepared(plan)?.plan);
        self.make_room_for(&plan)
    }

    fn make_room_for(&mut self, plan: &MemoryPlan) -> Result<(), Error> {
        if !self.arenas.holds(plan) {
            if self.options.growth == Growth::Replace {
                self.forget();
            }
            self.arenas.ensure(plan, self.options.growth)?;
            self.forget();
        }
        Ok(())
    }

    /// Gives up what lies in the arena: contents, and programs, which keep the buffers alive that they were compiled
    /// for.
    fn forget(&mut self) {
        for prepared in &mut self.prepared {
            prepared.program = None;
            prepared.inputs.forget();
        }
        self.results_of = None;
    }

    fn get_prepared(&self, plan: PlanId) -> Result<&Prepared, Error> {
        self.prepared.get(plan.0).ok_or(Error::UnknownPlan { plan: plan.0, plans: self.prepared.len() })
    }

    fn in_arena(&self, prepared: &Prepared, id: TensorId) -> Result<StoredTensor, Error> {
        let tensor = prepared.graph.tensor(id);
        let slot = self.slot(prepared, id).ok_or_else(|| unbound(&tensor.name))?;
        Ok(StoredTensor::new(tensor.name.as_str(), tensor.desc, slot)?)
    }

    fn slot(&self, prepared: &Prepared, id: TensorId) -> Option<Slot> {
        let place = prepared.plan.place(ValueId::new(id.index()))?;
        self.arenas.slot(place)
    }

    /// Where everything lies that the steps touch, in the arena as it is now.
    fn bindings(&self, prepared: &Prepared) -> Result<Bindings, Error> {
        let graph = &prepared.graph;
        let mut tensors = HashMap::new();
        let touched = prepared.steps.steps.iter().flat_map(|step| step.reads.iter().chain(&step.writes));
        for value in touched {
            let StepValue::Tensor(id) = value else { continue };
            let external = graph.root_leaf(*id).is_some_and(|leaf| leaf != Leaf::Input);
            let stored = if external { prepared.outside(*id)? } else { self.in_arena(prepared, *id)? };
            stored.slot().buffer.init_tensor(stored.desc(), stored.slot().offset)?;
            tensors.insert(*id, stored.slot().clone());
        }
        let temporary = |(index, temporary): (usize, &orlop_backend::Temporary)| {
            let place = prepared.plan.place(ValueId::new(graph.tensors().len() + index));
            let slot = place.and_then(|place| self.arenas.slot(place));
            let inside = |slot: &Slot| {
                slot.offset.checked_add(temporary.bytes).is_some_and(|end| end <= slot.buffer.bytes())
            };
            slot.filter(inside).ok_or_else(|| unbound(&temporary.name))
        };
        let temporaries =
            prepared.steps.temporaries.iter().enumerate().map(temporary).collect::<Result<_, _>>()?;
        Ok(Bindings { graph: Arc::clone(graph), tensors, temporaries })
    }
}

impl Prepared {
    fn tensor(&self, id: TensorId) -> Result<&orlop_graph::Tensor, Error> {
        let tensors = self.graph.tensors().len();
        self.graph.get(id).ok_or(Error::ForeignTensor { tensor: id, tensors })
    }

    /// A tensor whose root is kept beside the arena.
    fn outside(&self, id: TensorId) -> Result<StoredTensor, Error> {
        let tensor = self.graph.tensor(id);
        let root = tensor.storage.root;
        let persistent = self.persistent.iter().find(|(leaf, _)| *leaf == root).map(|(_, stored)| stored);
        let stored = persistent.or_else(|| self.externals.get(root)).ok_or_else(|| unbound(&tensor.name))?;
        Ok(stored.view(tensor.name.as_str(), tensor.desc, tensor.storage.offset)?)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("device", &self.device.name())
            .field("arena_bytes", &self.arena_bytes())
            .field("plans", &self.prepared.len())
            .finish()
    }
}

/// The pure part of preparing: from a graph to steps and their memory plan.
fn lower_and_plan(
    device: &dyn Device,
    graph: &Graph,
    externals: &Externals,
    arena_type: &Arc<dyn BufferType>,
    options: &SessionOptions,
) -> Result<(Steps, Arc<MemoryPlan>), Error> {
    let buffer_type = |id: TensorId| match externals.get(graph.tensor(id).storage.root) {
        Some(stored) => Some(Arc::clone(stored.slot().buffer.buffer_type())),
        None => Some(Arc::clone(arena_type)),
    };
    let buffer_types: Vec<Option<Arc<dyn BufferType>>> = graph.tensor_ids().map(buffer_type).collect();
    let mut escapes = vec![false; graph.tensors().len()];
    // What is read outside may be a view of what is computed here.
    for id in graph.results() {
        escapes[id.index()] = true;
        escapes[graph.tensor(id).storage.root.index()] = true;
    }
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let segment = Segment { graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &escapes };
    let steps = device.lower(&segment, &options.lower)?;
    let at: Vec<(ArenaId, u32)> =
        (0..steps.steps.len()).map(|index| (ArenaId::new(0), index as u32)).collect();
    let usage = usage_of(Lowered { graph, steps: &steps, at: &at }, &OneArena(&**arena_type))?;
    let usage = Arc::new(usage);
    if options.order == StepOrder::Given || !device.steps_may_move() {
        return Ok((steps, Arc::new(plan_memory(&usage, &options.plan)?)));
    }
    let best = plan_reordered(&usage, &options.plan)?;
    let steps = if best.gains() { steps.in_order(&best.order) } else { steps };
    Ok((steps, Arc::new(best.plan)))
}

/// Inputs and results in the arena, everything else beside it.
struct OneArena<'a>(&'a dyn BufferType);

impl Homes for OneArena<'_> {
    fn arenas(&self) -> Vec<ArenaInfo> {
        vec![ArenaInfo::of(self.0)]
    }

    fn bytes(&self, _: ArenaId, desc: &TensorDesc) -> u64 {
        self.0.alloc_bytes(desc)
    }

    fn leaf(&self, _: TensorId, leaf: Leaf) -> Option<ArenaId> {
        (leaf == Leaf::Input).then(|| ArenaId::new(0))
    }
}
