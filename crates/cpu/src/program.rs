mod groups;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{
    Bindings, Cancel, DeviceError, Program, RunOptions, Step, StepClock, StepValue, Steps, Touch, touched,
};
use orlop_graph::{DType, Graph, Op, Origin, TensorDesc};

pub(crate) use self::groups::MOST as MOST_IN_A_GROUP;
use self::groups::{Touched, groups, overlap};
use crate::access::{Dst, Scratch, Shared, Src};
use crate::isa::Isa;
use crate::kernels::{Chosen, of_step};
use crate::lower::{Needs, desc, name, shape, slot};
use crate::pool::{Barrier, ThreadPool};
use crate::simd::prefetch::{Far, prefetch};
use crate::taken::{AllTaken, WorkShares};
use crate::task::{Operand, Task, Thread};

/// Most places that are fetched when a step begins.
const AHEAD: usize = 16;

/// Steps at fixed places, ready to run.
pub(crate) struct CpuProgram {
    stages: Vec<Stage>,
    /// Stages between which threads need not meet, and those of them whose checks must wait for what is before.
    groups: Vec<(Range<usize>, Vec<usize>)>,
    /// Stages whose checks can be made before anything runs, but for those that look at the same things.
    checks: Vec<usize>,
    /// What threads have taken of products.
    taken: AllTaken,
    max_threads: usize,
    /// The name of its device; the same object there and here.
    device: Arc<str>,
    touches: Vec<Touch>,
    /// Keeps alive what the stages point into.
    #[allow(dead_code)]
    bindings: Bindings,
}

/// A step, and what is to be fetched when it begins: since the last run, weights have driven it out of every cache.
struct Stage {
    kernel: Chosen,
    task: Task,
    ahead: [Far; AHEAD],
}

impl CpuProgram {
    pub(crate) fn new(
        steps: &Steps,
        bindings: &Bindings,
        isa: Isa,
        device: &Arc<str>,
    ) -> Result<CpuProgram, DeviceError> {
        let graph = &bindings.graph;
        let max_threads = steps.options.max_threads.max(1);
        let mut stages = Vec::with_capacity(steps.steps.len());
        let (mut places, mut early, mut far) = (Vec::new(), Vec::new(), Vec::new());
        for step in &steps.steps {
            let foreign = || DeviceError::Foreign {
                what: "a lowered step",
                owner: step.kernel.to_string(),
                device: device.to_string(),
            };
            let (kernel, operands) = of_step(graph, step).ok_or_else(foreign)?;
            // Runs claim what steps say that they touch, so that must be what kernels touch.
            if operands.reads.len() != step.reads.len() || operands.writes.len() > step.writes.len() {
                return Err(foreign());
            }
            let (name, shape) = (name(graph, step), shape(graph, step, &operands));
            let mut src = Vec::with_capacity(step.reads.len());
            for (number, (operand, value)) in operands.reads.iter().zip(&step.reads).enumerate() {
                let slot = slot(bindings, *operand, *value)?.ok_or_else(foreign)?;
                let (desc, name) = described(graph, *operand);
                at_least(steps, graph, *value, desc.bytes()).ok_or_else(foreign)?;
                src.push(Src::new(slot, desc, name, number)?);
            }
            let mut dst = Vec::with_capacity(operands.writes.len());
            for (number, (operand, value)) in operands.writes.iter().zip(&step.writes).enumerate() {
                let slot = slot(bindings, *operand, *value)?.ok_or_else(foreign)?;
                let (desc, name) = described(graph, *operand);
                at_least(steps, graph, *value, desc.bytes()).ok_or_else(foreign)?;
                dst.push(Dst::new(slot, desc, name, src.len() + number)?);
            }
            let mut dst = dst.into_iter();
            let (first, also) = (dst.next().ok_or_else(foreign)?, dst.collect());
            let needs = Needs::of(&kernel, &shape, max_threads);
            let mut temporaries = step.writes[operands.writes.len()..].iter();
            let mut next = || match temporaries.next() {
                Some(value @ StepValue::Temporary(_)) => Ok(*value),
                _ => Err(foreign()),
            };
            let mut own_parts = None;
            let scratch = match needs.scratch_bytes {
                0 => Scratch::none(),
                _ => {
                    let value = next()?;
                    let slot = bindings.slot(value)?;
                    own_parts = Some(value);
                    at_least(steps, graph, value, needs.scratch_bytes).ok_or_else(foreign)?;
                    // Steps may share it, and then threads' parts are as long as the longest, in whole lines.
                    let per_thread = bytes(steps, graph, value) / max_threads as u64 / 64 * 64;
                    Scratch::new(slot, per_thread, max_threads)?
                }
            };
            let shared = match needs.shared_bytes {
                0 => Shared::none(),
                _ => {
                    let value = next()?;
                    at_least(steps, graph, value, needs.shared_bytes).ok_or_else(foreign)?;
                    Shared::new(bindings.slot(value)?, needs.shared.0, needs.shared.1)?
                }
            };
            let leaves = operands.reads.iter().zip(&src).filter(|(operand, _)| is_leaf(graph, **operand));
            far.push(leaves.flat_map(|(_, src)| src.beginnings()).collect::<Vec<Far>>());
            let touched = touched_by(steps, bindings, step, own_parts)?;
            early.push(kernel.check().is_some() && !looks_at_results(&places, &touched, &src));
            places.push(touched);
            let mut ops = shape.ops.into_iter().cloned();
            let op = ops.next().unwrap_or_else(|| unnamed(step));
            let more = ops.collect();
            let taken = WorkShares::none();
            let task = Task { op, more, name, src, dst: first, also, scratch, shared, taken, isa };
            stages.push(Stage { kernel, task, ahead: [Far::default(); AHEAD] });
        }
        let products = stages.iter().filter(|stage| stage.task.op == Op::MulMat).count();
        let taken = AllTaken::new(products, max_threads);
        let products = stages.iter_mut().filter(|stage| stage.task.op == Op::MulMat);
        products.enumerate().for_each(|(number, stage)| stage.task.taken = taken.of(number));
        for step in 0..stages.len() {
            let after = stages.get(step + 2).map(|stage| Far::of(&stage.task.src));
            let next = far.get(step + 1).into_iter().flatten().copied();
            for (place, far) in stages[step].ahead.iter_mut().zip(after.into_iter().chain(next)) {
                *place = far;
            }
        }
        let checks = distinct_checks(&stages, &early);
        let touches = touched(steps, bindings)?;
        let (device, bindings) = (Arc::clone(device), bindings.clone());
        let late = |step: &usize| !early[*step] && stages[*step].kernel.check().is_some();
        let groups = groups(&places).into_iter().map(|group| (group.clone(), group.filter(late).collect()));
        let groups = groups.collect();
        Ok(CpuProgram { stages, groups, checks, taken, max_threads, device, touches, bindings })
    }

    pub(crate) fn max_threads(&self) -> usize {
        self.max_threads
    }

    /// The name of the device that made it.
    pub(crate) fn device(&self) -> &Arc<str> {
        &self.device
    }

    /// Runs all tasks.
    ///
    /// # Safety
    /// The caller holds claims to all that the program touches, and nobody else touches it meanwhile.
    pub(crate) unsafe fn run(
        &self,
        pool: &ThreadPool,
        threads: usize,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        let run = Run {
            program: self,
            barrier: Barrier::new(threads),
            stop_at: AtomicUsize::new(usize::MAX),
            error: Mutex::new(None),
            cancel: options.cancel.as_ref(),
            clock: options.clock.as_ref(),
        };
        pool.run(threads, &|index| run.on_thread(index, threads));
        match run.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// What a step touches; threads have parts of their own of `own_parts`.
fn touched_by(
    steps: &Steps,
    bindings: &Bindings,
    step: &Step,
    own_parts: Option<StepValue>,
) -> Result<Vec<Touched>, DeviceError> {
    let touched = |(value, writes): (&StepValue, bool)| {
        let scratch = match value {
            StepValue::Temporary(number) if own_parts == Some(*value) => Some(*number),
            _ => None,
        };
        Ok(Touched { place: place(steps, bindings, *value)?, writes, scratch })
    };
    let reads = step.reads.iter().map(|value| (value, false));
    reads.chain(step.writes.iter().map(|value| (value, true))).map(touched).collect()
}

/// Whether a check would look at what steps before write: of a step's operands, only integers are looked at.
fn looks_at_results(before: &[Vec<Touched>], touched: &[Touched], operands: &[Src]) -> bool {
    let written = |place: &Range<u64>| {
        before.iter().flatten().any(|other| other.writes && overlap(&other.place, place))
    };
    let mut integers = touched.iter().zip(operands).filter(|(_, operand)| operand.holds_indices());
    integers.any(|(touched, _)| written(&touched.place))
}

/// Of tasks whose checks would find the same, one: every layer of a model looks at the same integers.
fn distinct_checks(stages: &[Stage], early: &[bool]) -> Vec<usize> {
    let mut distinct: Vec<usize> = Vec::new();
    for step in (0..stages.len()).filter(|step| early[*step]) {
        let task = &stages[step].task;
        if !distinct.iter().any(|other| stages[*other].task.checks_the_same(task)) {
            distinct.push(step);
        }
    }
    distinct
}

fn bytes(steps: &Steps, graph: &Graph, value: StepValue) -> u64 {
    match value {
        StepValue::Tensor(id) => graph.tensor(id).desc.bytes(),
        StepValue::Temporary(number) => steps.temporaries.get(number).map_or(0, |temporary| temporary.bytes),
    }
}

/// Nothing, if a temporary is smaller than what lies there: what steps touch is told by its size.
fn at_least(steps: &Steps, graph: &Graph, value: StepValue, needed: u64) -> Option<()> {
    (matches!(value, StepValue::Tensor(_)) || bytes(steps, graph, value) >= needed).then_some(())
}

/// The addresses of a value.
fn place(steps: &Steps, bindings: &Bindings, value: StepValue) -> Result<Range<u64>, DeviceError> {
    let slot = bindings.slot(value)?;
    let base = slot.buffer.host().map_or(0, |span| span.base.as_ptr().addr() as u64);
    let start = base.saturating_add(slot.offset);
    Ok(start..start.saturating_add(bytes(steps, &bindings.graph, value)))
}

/// An operand's description, and the name of the tensor that it is.
fn described(graph: &Graph, operand: Operand) -> (TensorDesc, &str) {
    let (Operand::Tensor(id) | Operand::EightBit(id)) = operand;
    (desc(graph, operand), &graph.tensor(id).name)
}

/// Whether an operand lies in what nobody computes.
fn is_leaf(graph: &Graph, operand: Operand) -> bool {
    let Operand::Tensor(id) = operand else { return false };
    matches!(graph.tensor(graph.tensor(id).storage.root).origin, Origin::Leaf(_))
}

/// Stands for the op of a step without nodes.
fn unnamed(step: &Step) -> Op {
    let (name, extents) = (step.kernel.to_string(), [1; 4]);
    Op::Custom { name, dtype: DType::F32, extents, overwrites: Vec::new() }
}

/// One run, as its threads share it.
struct Run<'a> {
    program: &'a CpuProgram,
    barrier: Barrier,
    /// First step that must not run. A failure inside a group stops the next one, so that all threads agree
    /// on where they stop, however late one of them looks.
    stop_at: AtomicUsize,
    error: Mutex<Option<DeviceError>>,
    cancel: Option<&'a Cancel>,
    clock: Option<&'a StepClock>,
}

impl Run<'_> {
    fn on_thread(&self, index: usize, count: usize) {
        let CpuProgram { stages, checks, groups, taken, .. } = self.program;
        if count > 1 {
            taken.begin(index);
        }
        if index == 0 {
            self.check(0, checks);
        }
        for (number, (group, late)) in groups.iter().enumerate() {
            if let Some(after) = groups.get(number + 4) {
                prefetch(std::slice::from_ref(after));
            }
            if !late.is_empty() {
                // What is looked at may be what the group before writes.
                self.barrier.wait();
            }
            if index == 0 {
                self.check(group.start, late);
            }
            self.barrier.wait();
            if self.stop_at.load(Ordering::Acquire) <= group.start {
                return;
            }
            if let (0, Some(clock)) = (index, self.clock) {
                clock.note(group.start);
            }
            for step in group.clone() {
                let stage = &stages[step];
                if let Some(after) = stages.get(step + 3) {
                    prefetch(std::slice::from_ref(after));
                }
                stage.ahead.iter().take_while(|far| !far.is_nowhere()).for_each(Far::fetch);
                self.run(stage, Thread { index, count, phase: 0 }, group.end);
            }
        }
    }

    /// Whether the run may go on at a step, as far as data can tell and nobody has cancelled it.
    fn check(&self, at: usize, steps: &[usize]) {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            let steps = self.program.stages.len();
            return self.fail(at, DeviceError::Cancelled { step: at, steps });
        }
        for Stage { kernel, task, .. } in steps.iter().map(|step| &self.program.stages[*step]) {
            if let Some(check) = kernel.check() {
                self.guarded(at, task, || check(task));
            }
        }
    }

    fn run(&self, Stage { kernel, task, .. }: &Stage, thread: Thread, stop_at: usize) {
        if task.dst.desc.is_empty() {
            return;
        }
        // SAFETY: each of the `count` threads, at most as many as the scratch was made for, passes its own number,
        // and the slice of the step before is gone.
        let scratch = unsafe { task.scratch.of_thread(thread.index) };
        let phases = kernel.phases(task);
        for phase in phases.clone() {
            if phase > phases.start {
                self.barrier.wait();
            }
            self.guarded(stop_at, task, || {
                kernel.run(task, Thread { phase, ..thread }, scratch);
                Ok(())
            });
        }
    }

    /// Runs a kernel's code; a panic in it must not leave other threads waiting.
    fn guarded(&self, stop_at: usize, task: &Task, work: impl FnOnce() -> Result<(), DeviceError>) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(stop_at, error),
            Err(_) => {
                let (op, tensor) = (task.op.name().to_owned(), task.name.clone());
                self.fail(stop_at, DeviceError::KernelPanicked { op, tensor });
            }
        }
    }

    fn fail(&self, stop_at: usize, error: DeviceError) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop_at.fetch_min(stop_at, Ordering::AcqRel);
    }
}

impl Program for CpuProgram {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for CpuProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuProgram of {} steps", self.stages.len())
    }
}

#[cfg(test)]
mod tests;
