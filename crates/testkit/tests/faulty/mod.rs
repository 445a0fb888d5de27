//! Devices that are broken on purpose, around the reference device.
#![allow(dead_code)] // each test file uses some of them

use std::any::Any;
use std::sync::Arc;

use orlop_backend::{
    Bindings, Claims, Device, DeviceError, LowerOptions, NodeQuery, Overwrite, Program, Queue, Reason,
    RunOptions, Segment, Slot, StepValue, Steps, Support, Temporary, Touch,
};
use orlop_graph::{AccessKind, DType, Op, TensorId};
use orlop_testkit::{
    DeviceHooks, Elements, Forward, ForwardQueue, QueueHooks, ReferenceDevice, compute, decode_elements,
    encode_elements, f32s,
};

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Changes the last element of what is computed last.
    Perturbed,
    /// Changes the lowest bit of a result whose place in its buffer is not the first.
    PlanDependent,
    /// Accepts everything and then refuses to compile rotations.
    Boastful,
    /// Refuses rotations.
    Choosy,
    /// Writes one more element after each result of `neg`.
    WritesTooFar,
    /// Writes one more element before each result of `neg`.
    WritesTooEarly,
    /// Adds what lies after the operand of `neg` to the result's first element.
    ReadsTooFar,
    /// Rolls rows element by element and claims that it can do so in place.
    RollsInPlace,
    /// Changes the operand of `neg`.
    WritesOperand,
    /// Gives `neg` a temporary of 16 bytes and fills it, which is no fault.
    Scratch,
    /// As before, and one element more.
    ScratchTooFar,
    /// Rounds the second operand of products through this type, which is no fault if it is the paired one.
    Rounds(DType),
    /// Sums rows from the operand as it is by then, which is right only out of place.
    SumsLate,
    /// Gives -0.001 for `silu` of numbers below -15, where nothing is left of them.
    LosesTails,
}

/// The reference device with a fault.
pub(crate) fn faulty(fault: Fault) -> Arc<dyn Device> {
    Forward::new(ReferenceDevice::named("faulty"), fault)
}

impl DeviceHooks for Fault {
    fn supports(&self, inner: &dyn Device, node: &NodeQuery<'_>) -> Support {
        if *self == Fault::Choosy && matches!(node.op, Op::Rope(_)) {
            return Support::No(Reason::Op);
        }
        inner.supports(node)
    }

    fn lower(
        &self,
        inner: &dyn Device,
        segment: &Segment<'_>,
        options: &LowerOptions,
    ) -> Result<Steps, DeviceError> {
        let mut steps = inner.lower(segment, options)?;
        if *self == Fault::RollsInPlace {
            for step in steps.steps.iter_mut().filter(|step| step.kernel == "roll") {
                step.may_overwrite.push(Overwrite { write: 0, read: 0 });
            }
        }
        if matches!(self, Fault::Scratch | Fault::ScratchTooFar) {
            for (index, step) in steps.steps.iter_mut().enumerate().filter(|(_, step)| step.kernel == "neg") {
                step.writes.push(StepValue::Temporary(steps.temporaries.len()));
                let name = format!("scratch {index}");
                steps.temporaries.push(Temporary { name, bytes: 16, first: index, last: index });
            }
        }
        Ok(steps)
    }

    fn compile(
        &self,
        inner: &dyn Device,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<Arc<dyn Program>, DeviceError> {
        let rotates = |node: &orlop_graph::NodeId| matches!(bindings.graph.node(*node).op, Op::Rope(_));
        let rotation = steps.steps.iter().any(|step| step.nodes.iter().any(rotates));
        if *self == Fault::Boastful && rotation {
            return Err(DeviceError::Lost { device: inner.name().to_owned(), reason: "rotated".to_owned() });
        }
        let one = |step: &orlop_backend::Step| {
            let alone = Steps { steps: vec![step.clone()], ..steps.clone() };
            inner.compile(&alone, bindings)
        };
        Ok(Arc::new(FaultyProgram {
            touches: orlop_backend::touched(steps, bindings)?,
            steps: steps.clone(),
            programs: steps.steps.iter().map(one).collect::<Result<_, _>>()?,
            bindings: bindings.clone(),
        }))
    }

    fn queue(&self, inner: &dyn Device) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(ForwardQueue::new(inner.queue()?, *self)))
    }
}

#[derive(Debug)]
struct FaultyProgram {
    touches: Vec<Touch>,
    steps: Steps,
    programs: Vec<Arc<dyn Program>>,
    bindings: Bindings,
}

impl Program for FaultyProgram {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl QueueHooks for Fault {
    unsafe fn submit(
        &mut self,
        queue: &mut dyn Queue,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        let program = program.as_any().downcast_ref::<FaultyProgram>().expect("its own program");
        for (index, (step, inner)) in program.steps.steps.iter().zip(&program.programs).enumerate() {
            let StepValue::Tensor(output) = step.writes[0] else { continue };
            let StepValue::Tensor(operand) = step.reads.first().copied().unwrap_or(step.writes[0]) else {
                continue;
            };
            let memory = Memory { bindings: &program.bindings, claims };
            if *self == Fault::RollsInPlace && step.kernel == "roll" {
                memory.roll(operand, output)?;
                continue;
            }
            if *self == Fault::SumsLate && step.kernel == "cumsum" {
                memory.running_sums(operand, output)?;
                continue;
            }
            if let (Fault::Rounds(dtype), "mul_mat") = (*self, &*step.kernel) {
                memory.rounded_product(dtype, &step.reads, output)?;
                continue;
            }
            // SAFETY: as our caller promises.
            unsafe { queue.submit(inner, claims, options)? };
            if memory.desc(output).is_empty() {
                continue;
            }
            let negates = step.kernel == "neg";
            let (end, size) =
                (memory.desc(output).bytes() as i64, memory.desc(output).dtype.block_bytes() as i64);
            match *self {
                Fault::Perturbed if index + 1 == program.programs.len() => {
                    memory.alter(output, end - size, size, 0x55)?
                }
                Fault::PlanDependent if memory.slot(output).offset > 0 => memory.alter(output, 0, 1, 1)?,
                Fault::WritesTooFar if negates => memory.alter(output, end, 4, 0x11)?,
                Fault::WritesTooEarly if negates => memory.alter(output, -4, 4, 0x11)?,
                Fault::WritesOperand if negates => memory.alter(operand, 0, 4, 0x11)?,
                Fault::Scratch if negates => memory.fill(step.writes[1], 16)?,
                Fault::ScratchTooFar if negates => memory.fill(step.writes[1], 20)?,
                Fault::LosesTails if step.kernel == "silu" => {
                    for at in (0..end).step_by(4) {
                        let x = memory.read(operand, at, 4)?;
                        if f32s(&x)[0] < -15.0 {
                            memory.write(output, at, &(-0.001_f32).to_le_bytes())?;
                        }
                    }
                }
                Fault::ReadsTooFar if negates => {
                    let stray = f32s(&memory.read(operand, memory.desc(operand).bytes() as i64, 4)?)[0];
                    let first = f32s(&memory.read(output, 0, 4)?)[0];
                    memory.write(output, 0, &(first + stray).to_le_bytes())?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Bytes around tensors.
struct Memory<'a> {
    bindings: &'a Bindings,
    claims: &'a Claims,
}

impl Memory<'_> {
    fn slot(&self, id: TensorId) -> &Slot {
        self.bindings.slot(StepValue::Tensor(id)).expect("bound")
    }

    fn desc(&self, id: TensorId) -> orlop_graph::TensorDesc {
        self.bindings.graph.tensor(id).desc
    }

    fn read(&self, id: TensorId, at: i64, bytes: i64) -> Result<Vec<u8>, DeviceError> {
        let slot = self.slot(id);
        let mut found = vec![0; bytes as usize];
        // SAFETY: everything happens on this thread, one claim after the other.
        let claim = unsafe { self.claims.lend(&*slot.buffer, AccessKind::Read)? };
        let end = slot.offset as i64 + at + bytes;
        if slot.offset as i64 + at >= 0 && end <= slot.buffer.bytes() as i64 {
            slot.buffer.read(&claim, (slot.offset as i64 + at) as u64, &mut found)?;
        }
        Ok(found)
    }

    fn write(&self, id: TensorId, at: i64, bytes: &[u8]) -> Result<(), DeviceError> {
        let slot = self.slot(id);
        let Ok(offset) = u64::try_from(slot.offset as i64 + at) else { return Ok(()) };
        if offset + bytes.len() as u64 > slot.buffer.bytes() {
            return Ok(());
        }
        // SAFETY: as in `read`.
        let claim = unsafe { self.claims.lend(&*slot.buffer, AccessKind::Write)? };
        slot.buffer.write(&claim, offset, bytes)
    }

    fn fill(&self, value: StepValue, bytes: u64) -> Result<(), DeviceError> {
        let slot = self.bindings.slot(value)?;
        // SAFETY: as in `read`.
        let claim = unsafe { self.claims.lend(&*slot.buffer, AccessKind::Write)? };
        slot.buffer.fill(&claim, slot.offset..slot.offset + bytes, 7)
    }

    fn alter(&self, id: TensorId, at: i64, bytes: i64, flip: u8) -> Result<(), DeviceError> {
        let mut found = self.read(id, at, bytes)?;
        found.iter_mut().for_each(|byte| *byte ^= flip);
        self.write(id, at, &found)
    }

    /// Rolls rows of F32 by one, element by element.
    fn roll(&self, from: TensorId, to: TensorId) -> Result<(), DeviceError> {
        let desc = self.desc(from);
        let [row, ..] = desc.extents;
        for at in 0..desc.rows() {
            for element in 0..row {
                let source = at * row + (element + row - 1) % row;
                let value = self.read(from, source as i64 * 4, 4)?;
                self.write(to, (at * row + element) as i64 * 4, &value)?;
            }
        }
        Ok(())
    }

    /// Running sums of one row of F32, each from the beginning.
    fn running_sums(&self, from: TensorId, to: TensorId) -> Result<(), DeviceError> {
        for element in 0..self.desc(from).extents[0] as i64 {
            let mut sum = 0.0_f32;
            for at in 0..=element {
                sum += f32s(&self.read(from, at * 4, 4)?)[0];
            }
            self.write(to, element * 4, &sum.to_le_bytes())?;
        }
        Ok(())
    }

    /// A product of contiguous operands, the second one rounded.
    fn rounded_product(&self, dtype: DType, reads: &[StepValue], to: TensorId) -> Result<(), DeviceError> {
        let operands = reads.iter().map(|value| {
            let StepValue::Tensor(id) = *value else { panic!("operands are tensors") };
            let desc = self.desc(id);
            let bytes = self.read(id, 0, desc.bytes() as i64).expect("readable");
            (desc, decode_elements(desc.dtype, &bytes).expect("has a codec"))
        });
        let mut operands: Vec<_> = operands.collect();
        let rounded = encode_elements(dtype, &operands[1].1).expect("has a codec");
        operands[1].1 = decode_elements(dtype, &rounded).expect("has a codec");
        let operands: Vec<Elements> = operands
            .into_iter()
            .map(|(desc, values)| Elements::new(desc, values).expect("as long"))
            .collect();
        let product = compute(&Op::MulMat, &operands, &self.desc(to)).expect("a product");
        self.write(to, 0, &encode_elements(DType::F32, &product).expect("has a codec"))
    }
}
