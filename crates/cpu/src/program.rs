//! Compiled steps: accessors bound to memory, and the run of all steps on a pool's threads.
//!
//! Threads meet at a barrier between groups of steps (`groups`): inside a group no step touches what another writes.
//! Kernels check indices among their operands before anything is written: before the whole run where the indices are
//! there already, else before the group. While a step runs, what the next ones read first is prefetched.

mod bind;
mod groups;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{Bindings, Cancel, DeviceError, Program, RunOptions, StepClock, Steps, Touch, touched};
use orlop_graph::Op;

use self::bind::{Binder, BoundStep};
pub(crate) use self::groups::MAX_GROUP;
use self::groups::{Touched, groups, overlap};
use crate::isa::Isa;
use crate::kernels::SelectedKernel;
use crate::pool::{Barrier, ThreadPool};
use crate::simd::prefetch::{Far, prefetch};
use crate::task::{Task, Thread};
use crate::work_shares::ProgramShares;

/// Most places that are prefetched when a step begins.
const AHEAD: usize = 16;

/// Steps at fixed places, ready to run.
pub(crate) struct CpuProgram {
    stages: Vec<Stage>,
    /// Stages between which threads need not meet, and those of them whose checks must wait for the stages before.
    groups: Vec<(Range<usize>, Vec<usize>)>,
    /// Stages whose checks are made before anything runs; of those that look at the same indices, one.
    checks: Vec<usize>,
    /// How threads share the work of products.
    work_shares: ProgramShares,
    max_threads: usize,
    /// The name of its device; the same object there and here.
    device: Arc<str>,
    touches: Vec<Touch>,
    /// Keeps alive what the stages point into.
    #[allow(dead_code)]
    bindings: Bindings,
}

/// A step, and what to prefetch when it begins: since the last run, weights have evicted it from every cache.
struct Stage {
    kernel: SelectedKernel,
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
        let max_threads = steps.options.max_threads.max(1);
        let binder = Binder { steps, bindings, isa, device, max_threads };
        let bound = steps.steps.iter().map(|step| binder.bind(step)).collect::<Result<Vec<_>, _>>()?;
        let early = early_checks(&bound);
        let groups = groups_and_late_checks(&bound, &early);
        let checks = distinct_checks(&bound, &early);
        let prefetch = prefetch_lists(&bound);
        let stage = |(step, ahead): (BoundStep, _)| Stage { kernel: step.kernel, task: step.task, ahead };
        let mut stages: Vec<Stage> = bound.into_iter().zip(prefetch).map(stage).collect();
        let work_shares = share_products(&mut stages, max_threads);
        let touches = touched(steps, bindings)?;
        let (device, bindings) = (Arc::clone(device), bindings.clone());
        Ok(CpuProgram { stages, groups, checks, work_shares, max_threads, device, touches, bindings })
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
    /// The caller holds claims to all that the program touches, and no other work touches it meanwhile.
    pub(crate) unsafe fn run(
        &self,
        pool: &ThreadPool,
        threads: usize,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        let run = ProgramRun {
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

/// Gives each product the counters by which its threads share work; returns those of all.
fn share_products(stages: &mut [Stage], max_threads: usize) -> ProgramShares {
    let is_product = |stage: &&mut Stage| stage.task.op == Op::MulMat;
    let shares = ProgramShares::new(stages.iter_mut().filter(is_product).count(), max_threads);
    let products = stages.iter_mut().filter(is_product);
    products.enumerate().for_each(|(number, stage)| stage.task.work_shares = shares.of(number));
    shares
}

/// For each step, what to prefetch when it begins: the operands' list of the step after the next, and the leaves of the
/// next.
fn prefetch_lists(steps: &[BoundStep]) -> Vec<[Far; AHEAD]> {
    let list = |index: usize| {
        let after = steps.get(index + 2).map(|step| Far::of(&step.task.src));
        let next = steps.get(index + 1).into_iter().flat_map(|step| step.leaves.iter().copied());
        let mut ahead = [Far::default(); AHEAD];
        ahead.iter_mut().zip(after.into_iter().chain(next)).for_each(|(place, far)| *place = far);
        ahead
    };
    (0..steps.len()).map(list).collect()
}

/// For each step, whether its check can be made before anything runs: it looks at no result of an earlier step.
fn early_checks(steps: &[BoundStep]) -> Vec<bool> {
    let early = |(index, step): (usize, &BoundStep)| {
        step.kernel.check().is_some() && !looks_at_results(&steps[..index], step)
    };
    steps.iter().enumerate().map(early).collect()
}

/// Whether a check would look at what steps before write: of a step's operands, only indices are looked at.
fn looks_at_results(before: &[BoundStep], step: &BoundStep) -> bool {
    let written = |place: &Range<u64>| {
        let mut places = before.iter().flat_map(|step| &step.touched);
        places.any(|other| other.writes && overlap(&other.place, place))
    };
    let operands = step.touched.iter().zip(&step.task.src);
    operands.filter(|(_, src)| src.holds_indices()).any(|(touched, _)| written(&touched.place))
}

/// Of steps whose early checks would find the same, one: every layer of a model looks at the same integers.
fn distinct_checks(steps: &[BoundStep], early: &[bool]) -> Vec<usize> {
    let mut distinct: Vec<usize> = Vec::new();
    for step in (0..steps.len()).filter(|step| early[*step]) {
        let task = &steps[step].task;
        if !distinct.iter().any(|other| steps[*other].task.checks_the_same(task)) {
            distinct.push(step);
        }
    }
    distinct
}

/// Steps between which threads need not meet, and those of them whose checks must wait for the steps before.
fn groups_and_late_checks(steps: &[BoundStep], early: &[bool]) -> Vec<(Range<usize>, Vec<usize>)> {
    let places: Vec<&[Touched]> = steps.iter().map(|step| &step.touched[..]).collect();
    let late = |step: &usize| !early[*step] && steps[*step].kernel.check().is_some();
    groups(&places).into_iter().map(|group| (group.clone(), group.filter(late).collect())).collect()
}

/// One run, as its threads share it.
struct ProgramRun<'a> {
    program: &'a CpuProgram,
    barrier: Barrier,
    /// First step that must not run. A failure inside a group stops the next one, so that all threads stop at the same
    /// step, however late one of them looks.
    stop_at: AtomicUsize,
    error: Mutex<Option<DeviceError>>,
    cancel: Option<&'a Cancel>,
    clock: Option<&'a StepClock>,
}

impl ProgramRun<'_> {
    fn on_thread(&self, index: usize, count: usize) {
        let CpuProgram { stages, checks, groups, work_shares, .. } = self.program;
        if count > 1 {
            work_shares.begin(index);
        }
        if index == 0 {
            self.check(0, checks);
        }
        for (number, (group, late)) in groups.iter().enumerate() {
            if let Some(after) = groups.get(number + 4) {
                prefetch(std::slice::from_ref(after));
            }
            if !late.is_empty() {
                // The indices may be results of the group before.
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

    /// Ends the run at a step if it was cancelled or a check refuses its data.
    fn check(&self, at: usize, steps: &[usize]) {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            let steps = self.program.stages.len();
            return self.fail(at, DeviceError::Cancelled { step: at, steps });
        }
        for Stage { kernel, task, .. } in steps.iter().map(|step| &self.program.stages[*step]) {
            if let Some(check) = kernel.check() {
                self.guarded(at, task, || check(&task.inputs()));
            }
        }
    }

    fn run(&self, Stage { kernel, task, .. }: &Stage, thread: Thread, stop_at: usize) {
        if task.dst.desc.is_empty() {
            return;
        }
        // SAFETY: `of_thread` asks for a live, claimed buffer: the program keeps it and `CpuProgram::run`'s caller claims it;
        // and for a thread's number below the threads that there is scratch for, once at a time: each of the `count` threads
        // passes its own, and the slice of the step before is gone.
        let scratch = unsafe { task.scratch.of_thread(thread.index) };
        let phases = kernel.body().phases(task);
        for phase in phases.clone() {
            if phase > phases.start {
                self.barrier.wait();
            }
            self.guarded(stop_at, task, || {
                // SAFETY: `run` asks for claims, which `CpuProgram::run`'s caller holds; for one call a thread and phase, with
                // all threads past the phase before, by the barriers here and between groups; and that no other step which
                // runs meanwhile conflicts with this one: those of a group do not.
                unsafe { kernel.body().run(task, Thread { phase, ..thread }, scratch) };
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
