//! The test device: the inner device, seen through private memory.

use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{
    Bindings, BufferType, Device, DeviceError, DeviceFacts, LowerOptions, NodeQuery, Operand, Program, Queue,
    Reason, Role, Segment, Slot, Steps, Support, same_type,
};

use super::builder::{Settings, TestDeviceBuilder};
use super::faults::Faults;
use super::ledger::{Counters, Ledger};
use super::memory::TestMemory;
use super::program::TestProgram;
use super::queue;

/// A device around another one, as [its builder](TestDevice::builder) was told; see [the module](crate::devices).
///
/// It lowers and computes as the inner device does, in memory of its own. What it does not say of itself, the
/// inner device says.
#[derive(Debug)]
pub struct TestDevice {
    inner: Arc<dyn Device>,
    settings: Arc<Settings>,
    ledger: Arc<Ledger>,
    /// For each of the inner device's kinds of arena, the one in front of it.
    arenas: Vec<Arc<dyn BufferType>>,
    /// Room for the inner device's view of a segment; an entry a tensor, empty between calls. Made anew for each of
    /// many small segments of a large graph, it would be most of the work.
    behind_segment: Mutex<Vec<Option<Arc<dyn BufferType>>>>,
}

impl TestDevice {
    /// A device that is like the inner one, but for its name and memory, until told otherwise.
    pub fn builder(inner: Arc<dyn Device>) -> TestDeviceBuilder {
        TestDeviceBuilder::new(inner)
    }

    pub(super) fn new(inner: Arc<dyn Device>, settings: Arc<Settings>) -> Arc<TestDevice> {
        let ledger = Arc::new(Ledger::new(Arc::clone(&settings.name), settings.memory));
        let front = |behind: &Arc<dyn BufferType>| -> Arc<dyn BufferType> {
            let (settings, ledger) = (Arc::clone(&settings), Arc::clone(&ledger));
            Arc::new(TestMemory { settings, ledger, behind: Arc::clone(behind) })
        };
        let arenas = inner.buffer_types(Role::Arena).iter().map(front).collect();
        Arc::new(TestDevice { inner, settings, ledger, arenas, behind_segment: Mutex::default() })
    }

    /// The device inside.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }

    /// What it does not do that it should.
    pub fn faults(&self) -> Faults {
        Faults(Arc::clone(&self.ledger))
    }

    /// What it has done, and what it holds.
    pub fn counters(&self) -> Counters {
        self.ledger.counters()
    }

    /// The inner device's kind of memory behind one of this device's.
    fn behind(&self, buffer_type: &Arc<dyn BufferType>) -> Option<&Arc<dyn BufferType>> {
        let own = self.arenas.iter().position(|arena| same_type(arena, buffer_type))?;
        self.inner.buffer_types(Role::Arena).get(own)
    }

    /// What the inner device is told about a place: its own memory, or the host's where this device reads that.
    fn reached(&self, buffer_type: &Arc<dyn BufferType>, writes: bool) -> Option<Arc<dyn BufferType>> {
        let host = self.settings.reads_host && !writes && buffer_type.is_host();
        self.behind(buffer_type).or(host.then_some(buffer_type)).cloned()
    }

    fn refuses(&self, node: &NodeQuery<'_>) -> bool {
        let named = || self.settings.without.iter().any(|name| name == node.op.name());
        let unlisted = || self.settings.only.as_ref().is_some_and(|supported| !supported(node.op));
        !node.op.is_view() && (named() || unlisted())
    }

    /// The place behind a place, `None` if this device does not reach it.
    fn slot_behind(&self, slot: &Slot) -> Option<Slot> {
        let buffer_type = slot.buffer.buffer_type();
        if self.behind(buffer_type).is_some() {
            let buffer = self.ledger.behind(&*slot.buffer)?;
            return Some(Slot { buffer, offset: slot.offset });
        }
        self.reached(buffer_type, false).map(|_| slot.clone())
    }

    /// Places behind all places; those that no step touches may be out of reach.
    fn bindings_behind(&self, steps: &Steps, bindings: &Bindings) -> Result<Bindings, DeviceError> {
        let foreign = |slot: &Slot| DeviceError::Foreign {
            what: "a buffer",
            owner: slot.buffer.buffer_type().name().to_owned(),
            device: self.settings.name.to_string(),
        };
        let own = |slot: &Slot| self.behind(slot.buffer.buffer_type()).is_some();
        for step in &steps.steps {
            for value in &step.reads {
                let slot = bindings.slot(*value)?;
                self.slot_behind(slot).ok_or_else(|| foreign(slot))?;
            }
            for value in &step.writes {
                let slot = bindings.slot(*value)?;
                self.slot_behind(slot).filter(|_| own(slot)).ok_or_else(|| foreign(slot))?;
            }
        }
        let temporary = |slot: &Slot| self.slot_behind(slot).ok_or_else(|| foreign(slot));
        Ok(Bindings {
            graph: bindings.graph.clone(),
            tensors: bindings
                .tensors
                .iter()
                .filter_map(|(id, slot)| Some((*id, self.slot_behind(slot)?)))
                .collect(),
            temporaries: bindings.temporaries.iter().map(temporary).collect::<Result<_, _>>()?,
        })
    }
}

impl Device for TestDevice {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            memory: self.ledger.memory(),
            lost: self.ledger.is_lost(),
            ..self.settings.facts.clone()
        }
    }

    fn buffer_types(&self, _: Role) -> &[Arc<dyn BufferType>] {
        &self.arenas
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        if self.refuses(node) {
            return Support::No(Reason::Op);
        }
        let result = node.inputs.len();
        let mut types = Vec::with_capacity(result + 1);
        for (operand, described) in node.inputs.iter().chain([&node.output]).enumerate() {
            let writes = operand == result && !node.op.is_view();
            types.push(match described.buffer_type {
                None => None,
                Some(buffer_type) => match self.reached(buffer_type, writes) {
                    Some(reached) => Some(reached),
                    None => {
                        let buffer_type = buffer_type.name().to_owned();
                        return Support::No(Reason::BufferType { operand, buffer_type });
                    }
                },
            });
        }
        let descs = node.inputs.iter().chain([&node.output]).map(|operand| operand.desc);
        let operands: Vec<Operand<'_>> = descs
            .zip(&types)
            .map(|(desc, buffer_type)| Operand { desc, buffer_type: buffer_type.as_ref() })
            .collect();
        let query = NodeQuery { op: node.op, inputs: &operands[..result], output: operands[result] };
        match self.inner.supports(&query) {
            Support::Yes { wants_offload } => {
                Support::Yes { wants_offload: wants_offload || self.settings.wants_offload }
            }
            refused => refused,
        }
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        for id in segment.nodes {
            if let Support::No(reason) = segment.support(self, *id) {
                let node = segment.graph.node(*id);
                return Err(DeviceError::Unsupported {
                    device: self.settings.name.to_string(),
                    op: node.op.name().to_owned(),
                    tensor: segment.graph.tensor(node.output).name.clone(),
                    reason,
                });
            }
        }
        let nodes = || segment.nodes.iter().map(|id| segment.graph.node(*id));
        let touched =
            || nodes().flat_map(|node| node.inputs.iter().chain([&node.output])).map(|id| id.index());
        let mut behind = self.behind_segment.lock().unwrap_or_else(PoisonError::into_inner);
        behind.resize(segment.buffer_types.len(), None);
        for index in touched() {
            if let (Some(Some(found)), Some(own)) = (segment.buffer_types.get(index), behind.get_mut(index)) {
                *own = Some(Arc::clone(self.behind(found).unwrap_or(found)));
            }
        }
        let lowered = self.inner.lower(&Segment { buffer_types: &behind, ..*segment }, options);
        touched().for_each(|index| _ = behind.get_mut(index).map(Option::take));
        lowered
    }

    fn steps_may_move(&self) -> bool {
        true
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        self.ledger.check()?;
        let program = self.inner.compile(steps, &self.bindings_behind(steps, bindings)?)?;
        let seconds = self.settings.clock.as_ref().map_or(0.0, |(_, estimate)| {
            steps.steps.iter().map(|step| estimate(step, &bindings.graph)).sum()
        });
        let count = steps.steps.len();
        Ok(Arc::new(TestProgram::new(&self.ledger, program, bindings, count, seconds)))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        self.ledger.check()?;
        queue::open(&self.settings, &self.ledger, self.inner.queue()?)
    }
}
