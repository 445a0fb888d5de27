//! The device of a [guard](crate::guard), and its memory with red zones.

use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{
    Bindings, Buffer, BufferType, Device, DeviceError, DeviceFacts, LowerOptions, MemoryLayout, NodeQuery,
    Operand, Program, Queue, Role, Segment, Step, StepValue, Steps, Support, same_type,
};
use orlop_graph::{Origin, TensorDesc, TensorId};

use super::program::GuardProgram;
use super::queue::{GuardedRuns, refuse};
use super::trespass::Trespass;
use super::whole::WholeProgram;
use crate::ForwardQueue;

/// Bytes of the red zone after every tensor and temporary: at least a vector of any width.
pub const ZONE: u64 = 128;

/// The kernel of a step that computes nothing: it names what must be there after the run, wherever it is put.
pub(super) const KEEP: &str = "guard keep";

/// A device that watches another one; see [the module](crate::guard).
///
/// ```
/// use std::sync::Arc;
/// use orlop_backend::Device;
/// use orlop_graph::{DType, GraphBuilder};
/// use orlop_testkit::guard::Guarded;
/// use orlop_testkit::{ReferenceDevice, f32_bytes, run_unplanned};
///
/// let guarded = Guarded::new(ReferenceDevice::new());
/// let device: Arc<dyn Device> = guarded.clone();
/// let mut b = GraphBuilder::new();
/// let x = b.input("x", DType::F32, &[2]);
/// let y = b.sqr(x);
/// let graph = b.build()?;
/// let outputs = run_unplanned(&device, &graph, &[(x, f32_bytes(&[3.0, -4.0]))])?;
/// assert_eq!(outputs.f32s(y)?, [9.0, 16.0]);
/// assert!(guarded.trespasses().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Guarded {
    inner: Arc<dyn Device>,
    name: Arc<str>,
    arenas: Vec<Arc<dyn BufferType>>,
    log: Arc<Mutex<Vec<Trespass>>>,
    /// Whether programs run as they are, and are looked at when they are done.
    by_program: bool,
}

impl Guarded {
    /// Watches a device, step by step.
    pub fn new(inner: Arc<dyn Device>) -> Arc<Guarded> {
        Guarded::watching(inner, false)
    }

    /// Watches a device program by program, for graphs that are too large to be watched step by step: programs run as
    /// they are, and afterwards all memory that they may write is read back. Nothing but results and temporaries may
    /// have changed, red zones included.
    pub fn by_program(inner: Arc<dyn Device>) -> Arc<Guarded> {
        Guarded::watching(inner, true)
    }

    fn watching(inner: Arc<dyn Device>, by_program: bool) -> Arc<Guarded> {
        let zoned = |inner: &Arc<dyn BufferType>| -> Arc<dyn BufferType> {
            Arc::new(Zoned { name: format!("{} with red zones", inner.name()), inner: Arc::clone(inner) })
        };
        let arenas = inner.buffer_types(Role::Arena).iter().map(zoned).collect();
        let name = Arc::from(format!("guarded {}", inner.name()));
        Arc::new(Guarded { inner, name, arenas, log: Arc::default(), by_program })
    }

    /// What has been noticed so far, in order.
    pub fn trespasses(&self) -> Vec<Trespass> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what was noticed.
    pub fn forget(&self) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The inner device's kind of memory behind one of ours.
    fn behind<'a>(&'a self, buffer_type: &'a Arc<dyn BufferType>) -> &'a Arc<dyn BufferType> {
        let ours = self.arenas.iter().position(|arena| same_type(arena, buffer_type));
        ours.and_then(|index| self.inner.buffer_types(Role::Arena).get(index)).unwrap_or(buffer_type)
    }
}

impl Device for Guarded {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> DeviceFacts {
        let facts = self.inner.facts();
        DeviceFacts { asynchronous: facts.asynchronous && self.by_program, ..facts }
    }

    fn buffer_types(&self, role: Role) -> &[Arc<dyn BufferType>] {
        match role {
            Role::Arena => &self.arenas,
            _ => self.inner.buffer_types(role),
        }
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        let behind = |operand: &Operand<'_>| {
            operand.buffer_type.map(|buffer_type| Arc::clone(self.behind(buffer_type)))
        };
        let types: Vec<Option<Arc<dyn BufferType>>> =
            node.inputs.iter().chain([&node.output]).map(behind).collect();
        let operands: Vec<Operand<'_>> = node
            .inputs
            .iter()
            .chain([&node.output])
            .zip(&types)
            .map(|(operand, buffer_type)| Operand { desc: operand.desc, buffer_type: buffer_type.as_ref() })
            .collect();
        let (inputs, output) = operands.split_at(node.inputs.len());
        self.inner.supports(&NodeQuery { op: node.op, inputs, output: output[0] })
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        let behind = |found: &Option<Arc<dyn BufferType>>| {
            found.as_ref().map(|buffer_type| Arc::clone(self.behind(buffer_type)))
        };
        let buffer_types: Vec<_> = segment.buffer_types.iter().map(behind).collect();
        let mut steps = self.inner.lower(&Segment { buffer_types: &buffer_types, ..*segment }, options)?;
        for temporary in &mut steps.temporaries {
            temporary.bytes = temporary.bytes.saturating_add(ZONE);
        }
        if self.by_program {
            return Ok(steps);
        }
        let reads = escaping(segment, &steps);
        steps.steps.push(Step {
            kernel: KEEP.into(),
            nodes: Vec::new(),
            reads,
            writes: Vec::new(),
            may_overwrite: Vec::new(),
        });
        Ok(steps)
    }

    fn steps_may_move(&self) -> bool {
        self.inner.steps_may_move()
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        if self.by_program {
            let program = self.inner.compile(steps, bindings)?;
            return Ok(Arc::new(WholeProgram::new(&self.name, program, steps, bindings)?));
        }
        let Some(arena) = self.inner.buffer_types(Role::Arena).first() else {
            return Err(DeviceError::Unbound { value: format!("the arena of {}", self.name) });
        };
        match GuardProgram::new(&*self.inner, &self.name, arena, steps, bindings)? {
            Ok(program) => Ok(Arc::new(program)),
            Err(trespasses) => Err(refuse(&self.name, &self.log, trespasses)),
        }
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        let (device, log) = (Arc::clone(&self.name), Arc::clone(&self.log));
        Ok(Box::new(ForwardQueue::new(self.inner.queue()?, GuardedRuns { device, log })))
    }
}

/// The values in memory that are read after a segment: those that leave it, and the graph's results whose storage it
/// touches, which may be views of what an earlier segment wrote.
fn escaping(segment: &Segment<'_>, steps: &Steps) -> Vec<StepValue> {
    let root = |id: TensorId| segment.graph.tensor(id).storage.root;
    let mut touched = vec![false; segment.graph.tensors().len()];
    for value in steps.steps.iter().flat_map(|step| step.reads.iter().chain(&step.writes)) {
        if let StepValue::Tensor(id) = value {
            touched[root(*id).index()] = true;
        }
    }
    let mut results = vec![false; segment.graph.tensors().len()];
    segment.graph.results().iter().for_each(|id| results[id.index()] = true);
    let is_kept = |id: &TensorId| {
        let leaf = matches!(segment.graph.tensor(root(*id)).origin, Origin::Leaf(_));
        let (escapes, touched) = (segment.escapes.get(id.index()) == Some(&true), touched[root(*id).index()]);
        (escapes && (leaf || touched)) || (results[id.index()] && touched)
    };
    segment.graph.tensor_ids().filter(is_kept).map(StepValue::Tensor).collect()
}

/// Memory in which every tensor is followed by a red zone. The buffers are the inner type's.
#[derive(Debug)]
struct Zoned {
    name: String,
    inner: Arc<dyn BufferType>,
}

impl BufferType for Zoned {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        self.inner.alignment()
    }

    fn max_bytes(&self) -> u64 {
        self.inner.max_bytes()
    }

    fn layout(&self) -> MemoryLayout {
        self.inner.layout()
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        self.inner.alloc_bytes(tensor).saturating_add(ZONE)
    }

    fn is_host(&self) -> bool {
        self.inner.is_host()
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        Arc::clone(&self.inner).allocate(bytes)
    }

    fn allocates(&self, other: &Arc<dyn BufferType>) -> bool {
        same_type(&self.inner, other)
    }
}
