//! Compiled steps: accessors bound to memory, and the run of all steps on a pool's threads.
//!
//! Steps are run in groups (`groups`): inside a group no step touches what another writes, so threads of the pool take its
//! steps, and parts of them, in any order. The caller goes from group to group, alone.
//! Kernels check indices among their operands before anything is written: before the whole run where the indices are
//! there already, else before the group. While a step runs, what the next ones read first is prefetched.

mod bind;
mod groups;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{Bindings, Cancel, DeviceError, Program, RunOptions, StepClock, Steps, Touch, touched};
use orlop_graph::Op;

use self::bind::{Binder, BoundStep};
pub(crate) use self::groups::MAX_GROUP;
use self::groups::{Touched, groups, overlap};
use crate::isa::Isa;
use crate::kernels::SelectedKernel;
use crate::pool::{Team, ThreadPool};
use crate::simd::prefetch::{Far, prefetch};
use crate::task::{Task, Thread};
use crate::work_shares::ProgramShares;

/// Most places that are prefetched when a step begins.
const AHEAD: usize = 16;

/// Steps at fixed places, ready to run.
pub(crate) struct CpuProgram {
    stages: Vec<Stage>,
    /// Stages that threads can run at the same time, and those of them whose checks must wait for the stages before.
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
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
            cancel: options.cancel.as_ref(),
            clock: options.clock.as_ref(),
        };
        run.groups(&mut pool.team(threads));
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

/// Steps that threads can run at the same time, and those of them whose checks must wait for the steps before.
fn groups_and_late_checks(steps: &[BoundStep], early: &[bool]) -> Vec<(Range<usize>, Vec<usize>)> {
    let places: Vec<&[Touched]> = steps.iter().map(|step| &step.touched[..]).collect();
    let late = |step: &usize| !early[*step] && steps[*step].kernel.check().is_some();
    groups(&places).into_iter().map(|group| (group.clone(), group.filter(late).collect())).collect()
}

/// One run, as its threads share it.
struct ProgramRun<'a> {
    program: &'a CpuProgram,
    /// Whether there is an error. Then the group's other items run, and no other group.
    failed: AtomicBool,
    error: Mutex<Option<DeviceError>>,
    cancel: Option<&'a Cancel>,
    clock: Option<&'a StepClock>,
}

/// Phases of steps that threads can run at the same time: each once for each of `count` threads, as kernels see them.
struct Section {
    /// Steps with their phases, of which `length` are filled.
    entries: [(usize, usize); MAX_GROUP],
    length: usize,
    count: usize,
}

impl Section {
    const EMPTY: Section = Section { entries: [(0, 0); MAX_GROUP], length: 0, count: 1 };
}

impl ProgramRun<'_> {
    /// Goes through all groups, on the caller's thread.
    fn groups(&self, team: &mut Team<'_>) {
        let CpuProgram { checks, groups, work_shares, .. } = self.program;
        let mut shares_are_new = false;
        self.check(0, checks);
        for (number, (group, late)) in groups.iter().enumerate() {
            if let Some(after) = groups.get(number + 4) {
                prefetch(std::slice::from_ref(after));
            }
            self.check(group.start, late);
            if self.failed.load(Ordering::Relaxed) {
                return;
            }
            if let Some(clock) = self.clock {
                clock.note(group.start);
            }
            let count = team.threads();
            if count > 1 && !shares_are_new {
                team.phase(count, &|index, _| work_shares.begin(index));
                shares_are_new = true;
            }
            self.group(team, group.clone(), count);
        }
    }

    /// Runs the steps of a group. Where a step has several phases, what comes before must be done first.
    fn group(&self, team: &mut Team<'_>, group: Range<usize>, count: usize) {
        let mut section = Section::EMPTY;
        for step in group {
            let Stage { kernel, task, .. } = &self.program.stages[step];
            if task.dst.desc.is_empty() {
                continue;
            }
            for (number, phase) in kernel.body().phases(task).enumerate() {
                if number > 0 {
                    self.section(team, &section);
                    section = Section::EMPTY;
                }
                section.entries[section.length] = (step, phase);
                section.length += 1;
                section.count = section.count.max(if kernel.body().is_for_one(task) { 1 } else { count });
            }
        }
        self.section(team, &section);
    }

    fn section(&self, team: &mut Team<'_>, section: &Section) {
        let entries = &section.entries[..section.length];
        let count = section.count;
        if count == 1 {
            return entries
                .iter()
                .for_each(|(step, phase)| self.run(*step, Thread { index: 0, count, phase: *phase }, 0));
        }
        team.phase(entries.len() * count, &|item, thread| {
            let (step, phase) = entries[item / count];
            self.run(step, Thread { index: item % count, count, phase }, thread);
        });
    }

    /// Ends the run at a step if it was cancelled or a check refuses its data.
    fn check(&self, at: usize, steps: &[usize]) {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            let steps = self.program.stages.len();
            return self.fail(DeviceError::Cancelled { step: at, steps });
        }
        for Stage { kernel, task, .. } in steps.iter().map(|step| &self.program.stages[*step]) {
            if let Some(check) = kernel.check() {
                self.guarded(task, || check(&task.inputs()));
            }
        }
    }

    /// Runs one kernel thread's part of a phase on a thread of the pool.
    fn run(&self, step: usize, thread: Thread, on: usize) {
        let stages = &self.program.stages;
        let Stage { kernel, task, ahead } = &stages[step];
        if let Some(after) = stages.get(step + 3) {
            prefetch(std::slice::from_ref(after));
        }
        ahead.iter().take_while(|far| !far.is_nowhere()).for_each(Far::fetch);
        // SAFETY: `of_thread` asks for a live, claimed buffer: the program keeps it and `CpuProgram::run`'s caller claims it;
        // and for a thread's number below the threads that there is scratch for, once at a time: the team has no more threads
        // than the program, and each has one item at a time.
        let scratch = unsafe { task.scratch.of_thread(on) };
        self.guarded(task, || {
            // SAFETY: `run` asks for claims, which `CpuProgram::run`'s caller holds; for one call for each index and phase, as an
            // item is run once, after all calls of the phase before, which were in an earlier phase of the pool; and that no
            // other step which runs meanwhile conflicts with this one: those of a group do not.
            unsafe { kernel.body().run(task, thread, scratch) };
            Ok(())
        });
    }

    /// Runs a kernel's code; a panic in it is the run's error.
    fn guarded(&self, task: &Task, work: impl FnOnce() -> Result<(), DeviceError>) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(error),
            Err(_) => {
                let (op, tensor) = (task.op.name().to_owned(), task.name.clone());
                self.fail(DeviceError::KernelPanicked { op, tensor });
            }
        }
    }

    fn fail(&self, error: DeviceError) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
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
