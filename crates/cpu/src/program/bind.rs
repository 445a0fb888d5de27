//! Binds a lowered step to memory: accessors for what its kernel reads and writes, and its scratch.

use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{Bindings, DeviceError, Slot, Step, StepValue, Steps};
use orlop_graph::{DType, Graph, Op, Origin, TensorDesc};

use super::groups::Touched;
use crate::access::{Dst, Scratch, SharedRows, Src};
use crate::isa::Isa;
use crate::kernels::{SelectedKernel, of_step};
use crate::lower::{Needs, desc, name, shape, slot};
use crate::simd::prefetch::Far;
use crate::task::{StepOperand, StepOperands, Task};
use crate::work_shares::WorkShares;

/// What all steps of a program are bound with.
pub(super) struct Binder<'a> {
    pub(super) steps: &'a Steps,
    pub(super) bindings: &'a Bindings,
    pub(super) isa: Isa,
    pub(super) device: &'a Arc<str>,
    pub(super) max_threads: usize,
}

/// A step with its kernel, bound to memory.
pub(super) struct BoundStep {
    pub(super) kernel: SelectedKernel,
    pub(super) task: Task,
    /// What it touches: its reads, then its writes.
    pub(super) touched: Vec<Touched>,
    /// What to prefetch of its operands that no step computes.
    pub(super) leaves: Vec<Far>,
}

/// Temporary memory of a step.
struct StepMemory {
    scratch: Scratch,
    /// The temporary that is its scratch, in which each thread has a part of its own.
    scratch_value: Option<StepValue>,
    shared: SharedRows,
}

impl Binder<'_> {
    /// Binds a step. Refuses steps that [`crate::lower`] has not made: runs claim what steps say that they touch, so that
    /// must be what their kernels touch.
    pub(super) fn bind(&self, step: &Step) -> Result<BoundStep, DeviceError> {
        let graph = &self.bindings.graph;
        let (kernel, operands) = of_step(graph, step).ok_or_else(|| self.foreign(step))?;
        if operands.reads.len() != step.reads.len() || operands.writes.len() > step.writes.len() {
            return Err(self.foreign(step));
        }
        let src = self.sources(step, &operands)?;
        let mut results = self.results(step, &operands)?.into_iter();
        let (dst, also) = (results.next().ok_or_else(|| self.foreign(step))?, results.collect());
        let shape = shape(graph, step, &operands);
        let needs = Needs::of(&kernel, &shape, self.max_threads);
        let memory = self.memory(step, &step.writes[operands.writes.len()..], needs)?;
        let leaves = operands.reads.iter().zip(&src).filter(|(operand, _)| is_leaf(graph, **operand));
        let leaves = leaves.flat_map(|(_, src)| src.beginnings()).collect();
        let touched = self.touched_by(step, memory.scratch_value)?;
        let mut ops = shape.ops.into_iter().cloned();
        let task = Task {
            op: ops.next().unwrap_or_else(|| unnamed(step)),
            more: ops.collect(),
            name: name(graph, step),
            src,
            dst,
            also,
            scratch: memory.scratch,
            shared: memory.shared,
            work_shares: WorkShares::none(),
            isa: self.isa,
        };
        Ok(BoundStep { kernel, task, touched, leaves })
    }

    fn sources(&self, step: &Step, operands: &StepOperands) -> Result<Vec<Src>, DeviceError> {
        let mut src = Vec::with_capacity(step.reads.len());
        for (number, (operand, value)) in operands.reads.iter().zip(&step.reads).enumerate() {
            let (slot, desc, name) = self.operand(step, *operand, *value)?;
            // SAFETY: `Src::new` asks for a live, claimed buffer without writers at every use: the program keeps its bindings,
            // and only `CpuProgram::run`, whose caller holds claims, uses its accessors, in kernels that keep the phase
            // rule and in checks while no thread writes.
            src.push(unsafe { Src::new(slot, desc, name, number) }?);
        }
        Ok(src)
    }

    fn results(&self, step: &Step, operands: &StepOperands) -> Result<Vec<Dst>, DeviceError> {
        let mut dst = Vec::with_capacity(operands.writes.len());
        for (number, (operand, value)) in operands.writes.iter().zip(&step.writes).enumerate() {
            let (slot, desc, name) = self.operand(step, *operand, *value)?;
            // SAFETY: `Dst::new` asks for a live, claimed buffer and exclusive bytes at every use: the program keeps its
            // bindings, and only `CpuProgram::run`, whose caller holds claims, uses its accessors, in kernels that keep the
            // phase rule.
            dst.push(unsafe { Dst::new(slot, desc, name, operands.reads.len() + number) }?);
        }
        Ok(dst)
    }

    /// Where an operand lies, its description, and the name of the tensor that it is.
    fn operand(
        &self,
        step: &Step,
        operand: StepOperand,
        value: StepValue,
    ) -> Result<(&Slot, TensorDesc, &str), DeviceError> {
        let graph = &self.bindings.graph;
        let slot = slot(self.bindings, operand, value)?.ok_or_else(|| self.foreign(step))?;
        let (StepOperand::Tensor(id) | StepOperand::Rounded(id, _)) = operand;
        let desc = desc(graph, operand);
        self.has_room(step, value, desc.bytes())?;
        Ok((slot, desc, &graph.tensor(id).name))
    }

    /// Scratch and shared rows, from the temporaries that follow a step's results.
    fn memory(
        &self,
        step: &Step,
        temporaries: &[StepValue],
        needs: Needs,
    ) -> Result<StepMemory, DeviceError> {
        let mut temporaries = temporaries.iter();
        let mut next = |bytes: u64| match temporaries.next() {
            Some(value @ StepValue::Temporary(_)) => {
                let slot = self.bindings.slot(*value)?;
                self.has_room(step, *value, bytes)?;
                Ok((*value, slot))
            }
            _ => Err(self.foreign(step)),
        };
        let mut memory =
            StepMemory { scratch: Scratch::none(), scratch_value: None, shared: SharedRows::none() };
        if needs.scratch_bytes > 0 {
            let (value, slot) = next(needs.scratch_bytes)?;
            // Steps may share it, and then threads' parts are as long as the longest, in whole cache lines.
            let per_thread = self.bytes(value) / self.max_threads as u64 / 64 * 64;
            memory.scratch = Scratch::new(slot, per_thread, self.max_threads)?;
            memory.scratch_value = Some(value);
        }
        if needs.shared_bytes > 0 {
            let (_, slot) = next(needs.shared_bytes)?;
            // SAFETY: `SharedRows::new` asks for a live, claimed buffer and that a row which one thread fills is no other's at
            // the time: the program keeps its bindings, and only `CpuProgram::run`, whose caller holds claims, uses its
            // accessors, in kernels that keep the phase rule.
            memory.shared = unsafe { SharedRows::new(slot, needs.shared.0, needs.shared.1) }?;
        }
        Ok(memory)
    }

    fn touched_by(&self, step: &Step, scratch_value: Option<StepValue>) -> Result<Vec<Touched>, DeviceError> {
        let touched = |(value, writes): (&StepValue, bool)| {
            let scratch = match value {
                StepValue::Temporary(number) if scratch_value == Some(*value) => Some(*number),
                _ => None,
            };
            Ok(Touched { place: self.place(*value)?, writes, scratch })
        };
        let reads = step.reads.iter().map(|value| (value, false));
        reads.chain(step.writes.iter().map(|value| (value, true))).map(touched).collect()
    }

    /// The addresses of a value.
    fn place(&self, value: StepValue) -> Result<Range<u64>, DeviceError> {
        let slot = self.bindings.slot(value)?;
        let base = slot.buffer.host().map_or(0, |span| span.base.as_ptr().addr() as u64);
        let start = base.saturating_add(slot.offset);
        Ok(start..start.saturating_add(self.bytes(value)))
    }

    fn bytes(&self, value: StepValue) -> u64 {
        match value {
            StepValue::Tensor(id) => self.bindings.graph.tensor(id).desc.bytes(),
            StepValue::Temporary(number) => self.steps.temporaries.get(number).map_or(0, |known| known.bytes),
        }
    }

    /// Refuses a temporary that is smaller than its contents: what steps touch is told by its size.
    fn has_room(&self, step: &Step, value: StepValue, needed: u64) -> Result<(), DeviceError> {
        let fits = matches!(value, StepValue::Tensor(_)) || self.bytes(value) >= needed;
        if fits { Ok(()) } else { Err(self.foreign(step)) }
    }

    fn foreign(&self, step: &Step) -> DeviceError {
        DeviceError::Foreign {
            what: "a lowered step",
            owner: step.kernel.to_string(),
            device: self.device.to_string(),
        }
    }
}

/// Whether no step computes an operand's storage.
fn is_leaf(graph: &Graph, operand: StepOperand) -> bool {
    let StepOperand::Tensor(id) = operand else { return false };
    matches!(graph.tensor(graph.tensor(id).storage.root).origin, Origin::Leaf(_))
}

/// Stands for the op of a step without nodes.
fn unnamed(step: &Step) -> Op {
    let (name, extents) = (step.kernel.to_string(), [1; 4]);
    Op::Custom { name, dtype: DType::F32, extents, overwrites: Vec::new() }
}
