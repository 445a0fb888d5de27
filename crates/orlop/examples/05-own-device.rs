//! A custom device beside the CPU: `cargo run -p orlop --example 05-own-device`.

use std::any::Any;
use std::sync::Arc;

use orlop::alloc::Externals;
use orlop::backend::{
    Bindings, BufferType, Claims, Device, DeviceClass, DeviceError, DeviceFacts, HostBufferType, Link,
    LowerOptions, NodeQuery, Program, Queue, Reason, Role, RunOptions, Segment, Slot, StagingMemory,
    StepValue, Steps, Support, Touch, touched,
};
use orlop::cpu::{CpuDevice, ThreadPool};
use orlop::graph::{AccessKind, DType, GraphBuilder, Op, Unary};
use orlop::sched::{Constraints, Machine, Session, SessionOptions, place_by_rules};

/// A device that squares and negates F32 tensors and supports nothing else.
#[derive(Debug)]
pub(crate) struct Abacus {
    memory: [Arc<dyn BufferType>; 1],
}

impl Abacus {
    /// A device with host memory.
    pub(crate) fn new() -> Arc<Abacus> {
        Arc::new(Abacus { memory: [HostBufferType::new("abacus")] })
    }
}

/// The kernel of an op, if there is one.
fn kernel(op: &Op) -> Option<fn(f32) -> f32> {
    match op {
        Op::Unary(Unary::Sqr) => Some(|x| x * x),
        Op::Unary(Unary::Neg) => Some(|x| -x),
        _ => None,
    }
}

impl Device for Abacus {
    fn name(&self) -> &str {
        "abacus"
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            description: "beads on wires".to_owned(),
            class: DeviceClass::Accelerator,
            memory: None,
            flops: 1e8,
            bytes_per_second: 1e9,
            cache_bytes: 0,
            launch_seconds: 1e-6,
            host_link: Link { bytes_per_second: 1e10, latency_seconds: 0.0 },
            staging: StagingMemory::default(),
            asynchronous: false,
            lost: false,
        }
    }

    fn buffer_types(&self, _: Role) -> &[Arc<dyn BufferType>] {
        &self.memory
    }

    // Reject every node that the kernels cannot compute, with the reason.
    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        if node.op.is_view() {
            return Support::YES;
        }
        if kernel(node.op).is_none() {
            return Support::No(Reason::Op);
        }
        for (operand, value) in node.inputs.iter().chain([&node.output]).enumerate() {
            if value.desc.dtype != DType::F32 {
                return Support::No(Reason::DType { operand, dtype: value.desc.dtype });
            }
            if !value.desc.is_contiguous() {
                return Support::No(Reason::Strides { operand });
            }
            if let Some(other) = value.buffer_type.filter(|memory| !memory.is_host()) {
                return Support::No(Reason::BufferType { operand, buffer_type: other.name().to_owned() });
            }
        }
        Support::YES
    }

    // Steps declare what they read, write and may overwrite; memory is planned from them.
    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        segment.one_step_per_node(self, options)
    }

    // The plan is known now: every value has its memory.
    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        let mut moves = Vec::new();
        for id in steps.steps.iter().flat_map(|step| &step.nodes) {
            let node = bindings.graph.node(*id);
            let kernel = kernel(&node.op).ok_or_else(|| foreign("a step"))?;
            let from = bindings.slot(StepValue::Tensor(node.inputs[0]))?.clone();
            let to = bindings.slot(StepValue::Tensor(node.output))?.clone();
            moves.push(Move { kernel, from, to, bytes: bindings.graph.tensor(node.output).desc.bytes() });
        }
        Ok(Arc::new(Moves { moves, touches: touched(steps, bindings)? }))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(Hand))
    }
}

fn foreign(what: &'static str) -> DeviceError {
    DeviceError::Foreign { what, owner: "another device".to_owned(), device: "abacus".to_owned() }
}

/// A kernel with the memory of its operands.
#[derive(Debug)]
struct Move {
    kernel: fn(f32) -> f32,
    from: Slot,
    to: Slot,
    bytes: u64,
}

/// A compiled program.
#[derive(Debug)]
struct Moves {
    moves: Vec<Move>,
    touches: Vec<Touch>,
}

impl Program for Moves {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A synchronous queue: work is done when `submit` returns.
#[derive(Debug)]
struct Hand;

impl Queue for Hand {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        let Moves { moves, .. } = program.as_any().downcast_ref().ok_or_else(|| foreign("a program"))?;
        for (step, Move { kernel, from, to, bytes }) in moves.iter().enumerate() {
            if options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
                return Err(DeviceError::Cancelled { step, steps: moves.len() });
            }
            let mut values = vec![0; *bytes as usize];
            // SAFETY: the claim is used before the next is lent, on this thread; our caller answers for other queues.
            let read = unsafe { claims.lend(&*from.buffer, AccessKind::Read) }?;
            from.buffer.read(&read, from.offset, &mut values)?;
            for value in values.as_chunks_mut().0 {
                *value = kernel(f32::from_le_bytes(*value)).to_le_bytes();
            }
            // SAFETY: as above; the claim to read is not used any more.
            let write = unsafe { claims.lend(&*to.buffer, AccessKind::Write) }?;
            to.buffer.write(&write, to.offset, &values)?;
        }
        Ok(())
    }
}

/// Computes `sum(-(2 x)²)` and prints the placement: the square is pinned to the abacus, and its readers follow if
/// supported.
pub(crate) fn run() -> Result<(f32, String), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let doubled = b.scale(x, 2.0);
    let squared = b.sqr(doubled);
    let negated = b.unary(Unary::Neg, squared);
    let sum = b.sum(negated);
    b.output(sum);
    let graph = b.build()?;

    let machine = Machine::new([Abacus::new() as _, CpuDevice::new(ThreadPool::new(1)?) as _])?;
    let mut constraints = Constraints::default();
    constraints.assigned.insert(squared, machine.find("abacus")?);
    let placement = place_by_rules(&graph, &machine, &constraints)?;
    let table = placement.table(&graph, &machine).to_string();

    let mut session = Session::new(machine, SessionOptions::default())?;
    let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement)?;
    session.set_f32(plan, x, &[1.0, 2.0, 3.0, 4.0])?;
    session.run(plan, &RunOptions::default())?;
    Ok((session.get_f32(plan, sum)?[0], table))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (sum, table) = run()?;
    println!("{table}\n{sum}");
    Ok(())
}
