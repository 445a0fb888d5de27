use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{Bindings, Cancel, DeviceError, Program, Step, Steps, Touch, Value, touched};
use orlop_graph::{DType, Graph, Op, TensorDesc};

use crate::access::{Dst, Scratch, Shared, Src};
use crate::isa::Isa;
use crate::kernels::{Chosen, of_step};
use crate::lower::{Needs, desc, name, shape, slot};
use crate::pool::{Barrier, Pool};
use crate::task::{Operand, Task, Thread};

/// Steps at fixed places, ready to run.
pub(crate) struct CpuProgram {
    tasks: Vec<(Chosen, Task)>,
    max_threads: usize,
    /// The name of its device; the same object there and here.
    device: Arc<str>,
    touches: Vec<Touch>,
    /// Keeps alive what the tasks point into.
    #[allow(dead_code)]
    bindings: Bindings,
}

impl CpuProgram {
    pub(crate) fn new(
        steps: &Steps,
        bindings: &Bindings,
        isa: Isa,
        device: &Arc<str>,
    ) -> Result<CpuProgram, DeviceError> {
        let graph = &bindings.graph;
        let max_threads = steps.options.max_threads;
        let mut tasks = Vec::with_capacity(steps.steps.len());
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
                src.push(Src::new(slot, desc, name, number)?);
            }
            let mut dst = Vec::with_capacity(operands.writes.len());
            for (number, (operand, value)) in operands.writes.iter().zip(&step.writes).enumerate() {
                let slot = slot(bindings, *operand, *value)?.ok_or_else(foreign)?;
                let (desc, name) = described(graph, *operand);
                dst.push(Dst::new(slot, desc, name, src.len() + number)?);
            }
            let mut dst = dst.into_iter();
            let (first, also) = (dst.next().ok_or_else(foreign)?, dst.collect());
            let needs = Needs::of(&kernel, &shape, max_threads);
            let mut temporaries = step.writes[operands.writes.len()..].iter();
            let mut next = || match temporaries.next() {
                Some(value @ Value::Temporary(_)) => Ok(*value),
                _ => Err(foreign()),
            };
            let scratch = match needs.scratch_bytes {
                0 => Scratch::none(),
                _ => Scratch::new(bindings.slot(next()?)?, needs.per_thread, max_threads)?,
            };
            let shared = match needs.shared_bytes {
                0 => Shared::none(),
                _ => Shared::new(bindings.slot(next()?)?, needs.shared.0, needs.shared.1)?,
            };
            let mut ops = shape.ops.into_iter().cloned();
            let op = ops.next().unwrap_or_else(|| unnamed(step));
            let more = ops.collect();
            tasks.push((kernel, Task { op, more, name, src, dst: first, also, scratch, shared, isa }));
        }
        let touches = touched(steps, bindings)?;
        let (device, bindings) = (Arc::clone(device), bindings.clone());
        Ok(CpuProgram { tasks, max_threads, device, touches, bindings })
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
        pool: &Pool,
        threads: usize,
        cancel: Option<&Cancel>,
    ) -> Result<(), DeviceError> {
        let run = Run {
            tasks: &self.tasks,
            barrier: Barrier::new(threads),
            stop_at: AtomicUsize::new(usize::MAX),
            error: Mutex::new(None),
            cancel,
        };
        pool.run(threads, &|index| run.on_thread(index, threads));
        match run.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// An operand's description, and the name of the tensor that it is.
fn described(graph: &Graph, operand: Operand) -> (TensorDesc, &str) {
    let (Operand::Tensor(id) | Operand::EightBit(id)) = operand;
    (desc(graph, operand), &graph.tensor(id).name)
}

/// Stands for the op of a step without nodes.
fn unnamed(step: &Step) -> Op {
    let (name, extents) = (step.kernel.to_string(), [1; 4]);
    Op::Custom { name, dtype: DType::F32, extents, overwrites: Vec::new() }
}

/// One run, as its threads share it.
struct Run<'a> {
    tasks: &'a [(Chosen, Task)],
    barrier: Barrier,
    /// First step that must not run. A failure inside a step stops the next one, so that all threads agree
    /// on where they stop, however late one of them looks.
    stop_at: AtomicUsize,
    error: Mutex<Option<DeviceError>>,
    cancel: Option<&'a Cancel>,
}

impl Run<'_> {
    fn on_thread(&self, index: usize, count: usize) {
        for (step, (kernel, task)) in self.tasks.iter().enumerate() {
            let check = kernel.check();
            if check.is_some() {
                // What is looked at may be what the step before writes.
                self.barrier.wait();
            }
            if index == 0 {
                if self.cancel.is_some_and(Cancel::is_cancelled) {
                    self.fail(step, DeviceError::Cancelled { step, steps: self.tasks.len() });
                } else if let Some(check) = check {
                    self.guarded(step, task, || check(task));
                }
            }
            self.barrier.wait();
            if self.stop_at.load(Ordering::Acquire) <= step {
                return;
            }
            if task.dst.desc.is_empty() {
                continue;
            }
            // SAFETY: each of the `count` threads, at most as many as the scratch was made for, passes its own number,
            // and the slice of the step before is gone.
            let scratch = unsafe { task.scratch.of_thread(index) };
            for phase in 0..kernel.phases() {
                if phase > 0 {
                    self.barrier.wait();
                }
                self.guarded(step + 1, task, || {
                    kernel.run(task, Thread { index, count, phase }, scratch);
                    Ok(())
                });
            }
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
        write!(f, "CpuProgram of {} steps", self.tasks.len())
    }
}

#[cfg(test)]
mod tests;
