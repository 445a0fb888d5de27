//! The race check: bytes that commands touch, where they lie now, against who waits for whom.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{Bindings, Buffer, Slot, Step, StepValue, Steps, StoredTensor};
use orlop_graph::{Access, AccessKind, Hazard, dependencies};

use crate::session::prepared::Prepared;
use crate::{Command, Error, PlanId, Point, Schedule, Session, Split, SplitId};

/// Two splits that touch the same bytes, one of them writing, with nothing that keeps them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of run {before_run} and {} of run {after_run} touch the same bytes ({hazard:?}), and neither waits for the other",
    name(*before), name(*after)
)]
pub struct Race {
    /// The one that comes first; `None` for the host, which sets inputs, reads results and observes.
    pub before: Option<SplitId>,
    /// The other.
    pub after: Option<SplitId>,
    /// The run that the first belongs to, of several in flight.
    pub before_run: usize,
    /// The run that the other belongs to.
    pub after_run: usize,
    /// What goes wrong if they change places.
    pub hazard: Hazard,
}

fn name(split: Option<SplitId>) -> String {
    split.map_or_else(|| "the host".to_owned(), |split| format!("split {split}"))
}

impl Session {
    /// Compares the bytes that each split touches, where they lie now, with who waits for whom; if several runs may be in
    /// flight, over as many of them and one more. Independent of how the memory was planned.
    ///
    /// # Errors
    /// [`Error::Race`] for the first pair of splits that could meet; that would be a mistake of this crate.
    pub fn check_races(&self, plan: PlanId) -> Result<(), Error> {
        self.check_races_in(plan, &self.get_prepared(plan)?.planned.schedule)
    }

    /// As [`Session::check_races`], with who waits for whom taken from another schedule of the same splits: what if an
    /// edge were missing?
    ///
    /// # Errors
    /// As there, and [`Error::ForeignSchedule`] for other splits.
    pub fn check_races_in(&self, plan: PlanId, schedule: &Schedule) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        let same = |(a, b): (&Split, &Split)| {
            a.device == b.device && a.nodes == b.nodes && a.transfers == b.transfers
        };
        let transfers = prepared.planned.schedule.transfers.len();
        let (own, given) = (&prepared.planned.schedule.splits, &schedule.splits);
        if own.len() != given.len()
            || transfers != schedule.transfers.len()
            || !own.iter().zip(given).all(same)
        {
            return Err(Error::ForeignSchedule { splits: own.len(), given: given.len() });
        }
        self.check_with(prepared, schedule, true)
    }

    /// As [`Session::check_races`], but runs in flight do not wait for each other: what if that were forgotten?
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)] // for tests of the check
    pub fn check_races_without_carries(&self, plan: PlanId) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        self.check_with(prepared, &prepared.planned.schedule, false)
    }

    fn check_with(&self, prepared: &Prepared, schedule: &Schedule, carries: bool) -> Result<(), Error> {
        let depth = prepared.slots.len();
        let mut checker = Checker::new(self.machine.devices().len(), schedule.splits.len());
        let runs = if depth == 1 { 1 } else { depth + 1 };
        for run in 0..runs {
            let slot = run % depth;
            if run >= depth {
                // The host reads the results of the run whose place this one takes, once that has ended.
                let ended = checker.all_of(run - depth);
                let results = prepared.results.iter().filter(|id| prepared.planned.memory.has(**id));
                checker.host(run - depth, ended);
                for id in results {
                    checker.whole(&self.in_arena(prepared, slot, *id)?, AccessKind::Read);
                }
            }
            checker.host(run, Vec::new());
            for (id, _) in prepared.graph.leaves().filter(|(id, _)| prepared.planned.memory.has(*id)) {
                checker.whole(&self.in_arena(prepared, slot, id)?, AccessKind::Write);
            }
            self.add_run(&mut checker, prepared, schedule, run, carries)?;
        }
        Ok(checker.check()?)
    }

    fn add_run(
        &self,
        checker: &mut Checker,
        prepared: &Prepared,
        schedule: &Schedule,
        run: usize,
        carries: bool,
    ) -> Result<(), Error> {
        let slot = run % prepared.slots.len();
        // The last thing that the host did: what is given to a queue afterwards begins afterwards.
        let mut host = checker.units.len() - 1;
        for id in schedule.ids() {
            let split = &schedule[id];
            let queue = split.device.index();
            let mut waits = vec![host];
            if carries && run > 0 {
                let own = prepared.planned.cross_run.iter().filter(|wait| wait.split == id);
                waits.extend(own.map(|wait| checker.unit(run - 1, wait.earlier, point(wait.copies_only))));
            }
            for command in schedule.commands_of(id) {
                match command {
                    // A wait for a later split, in a schedule made by hand, promises nothing.
                    Command::Wait { on, .. } if on < id => waits.push(checker.unit(run, on, Point::Ended)),
                    Command::Wait { .. } => {}
                    Command::Transfer { transfer, .. } => {
                        let Some((from, to)) = self.ends_of_copy(prepared, slot, transfer)? else { continue };
                        checker.begin(queue, run, Some(id), waits.clone());
                        checker.whole(&from, AccessKind::Read);
                        checker.whole(&to, AccessKind::Write);
                    }
                    Command::Compute { .. } => {
                        checker.begin(queue, run, Some(id), waits.clone());
                        let steps = &prepared.planned.steps[id.index()];
                        let bindings = self.bindings(prepared, slot, id)?;
                        let Some(seen) = split.observed else {
                            checker.steps(steps, 0..steps.steps.len(), &bindings);
                            continue;
                        };
                        // The observer means the bytes as the step left them that computes the result. It reads them
                        // when the split has ended, so no later step of the split may write there: none of them waits.
                        let computes = |step: &Step| step.writes.contains(&StepValue::Tensor(seen));
                        let computed = steps.steps.iter().rposition(computes).map_or(0, |step| step + 1);
                        checker.steps(steps, 0..computed, &bindings);
                        let until = checker.units.len() - 1;
                        checker.host(run, vec![until]);
                        host = checker.units.len() - 1;
                        checker.whole(&self.observed(prepared, slot, seen)?, AccessKind::Read);
                        checker.begin(queue, run, Some(id), waits.clone());
                        checker.steps(steps, computed..steps.steps.len(), &bindings);
                    }
                    Command::Record { point, .. } => checker.note(run, id, point),
                }
            }
        }
        Ok(())
    }
}

/// The point of a split that a run waits for.
fn point(copies_only: bool) -> Point {
    if copies_only { Point::Transferred } else { Point::Ended }
}

/// Something that one queue, or the host, does as a whole.
#[derive(Debug)]
struct Unit {
    queue: usize,
    run: usize,
    /// `None` for the host.
    split: Option<SplitId>,
    waits: Vec<usize>,
}

/// Collects which bytes of which buffer each unit touches, and compares with who waits for whom. It knows nothing of
/// lifetimes or plans.
#[derive(Debug, Default)]
struct Checker {
    devices: usize,
    splits: usize,
    units: Vec<Unit>,
    /// The last unit before each point of each run and split.
    known: HashMap<(usize, SplitId, Point), usize>,
    /// Numbers of the buffers, by the address of their gates.
    buffers: HashMap<usize, (u32, Arc<dyn Buffer>)>,
    accesses: Vec<Access>,
}

impl Checker {
    fn new(devices: usize, splits: usize) -> Checker {
        Checker { devices, splits, ..Checker::default() }
    }

    fn begin(&mut self, queue: usize, run: usize, split: Option<SplitId>, waits: Vec<usize>) {
        self.units.push(Unit { queue, run, split, waits });
    }

    fn host(&mut self, run: usize, waits: Vec<usize>) {
        self.begin(self.devices, run, None, waits);
    }

    /// Remembers the latest unit as the last one before a point of a split.
    fn note(&mut self, run: usize, split: SplitId, point: Point) {
        self.known.insert((run, split, point), self.units.len() - 1);
    }

    fn unit(&self, run: usize, split: SplitId, point: Point) -> usize {
        self.known.get(&(run, split, point)).copied().unwrap_or(0)
    }

    fn all_of(&self, run: usize) -> Vec<usize> {
        (0..self.splits).map(|split| self.unit(run, SplitId::new(split), Point::Ended)).collect()
    }

    fn whole(&mut self, stored: &StoredTensor, kind: AccessKind) {
        self.touch(stored.slot(), stored.desc().bytes(), kind);
    }

    fn steps(&mut self, steps: &Steps, range: Range<usize>, bindings: &Bindings) {
        for step in &steps.steps[range] {
            let reads = step.reads.iter().map(|value| (*value, AccessKind::Read));
            let writes = step.writes.iter().map(|value| (*value, AccessKind::Write));
            for (value, kind) in reads.chain(writes) {
                let Ok(slot) = bindings.slot(value) else { continue };
                let bytes = match value {
                    StepValue::Tensor(id) => bindings.graph.tensor(id).desc.bytes(),
                    StepValue::Temporary(number) => steps.temporaries[number].bytes,
                };
                self.touch(slot, bytes, kind);
            }
        }
    }

    /// Bytes that the latest unit touches.
    fn touch(&mut self, slot: &Slot, bytes: u64, kind: AccessKind) {
        let fresh = self.buffers.len() as u32;
        let gate = Arc::as_ptr(slot.buffer.gate()).addr();
        let (root, _) = self.buffers.entry(gate).or_insert_with(|| (fresh, Arc::clone(&slot.buffer)));
        let root = *root;
        let range = slot.offset..slot.offset.saturating_add(bytes);
        self.accesses.push(Access { step: (self.units.len() - 1) as u32, root, range, kind });
    }

    /// The first pair that nothing keeps apart.
    fn check(&self) -> Result<(), Race> {
        let clocks = self.clocks();
        for edge in dependencies(&self.accesses) {
            let (before, after) = (edge.before as usize, edge.after as usize);
            let (first, second) = (&self.units[before], &self.units[after]);
            if first.queue != second.queue && clocks[after][first.queue] < Some(before) {
                return Err(Race {
                    before: first.split,
                    after: second.split,
                    before_run: first.run,
                    after_run: second.run,
                    hazard: edge.hazard,
                });
            }
        }
        Ok(())
    }

    /// For each unit, the last one of each queue that has surely ended when it begins.
    fn clocks(&self) -> Vec<Vec<Option<usize>>> {
        let mut clocks: Vec<Vec<Option<usize>>> = Vec::with_capacity(self.units.len());
        let mut last_of: Vec<Option<usize>> = vec![None; self.devices + 1];
        for (index, unit) in self.units.iter().enumerate() {
            let mut clock: Vec<Option<usize>> = vec![None; self.devices + 1];
            let own = last_of[unit.queue].replace(index);
            for earlier in unit.waits.iter().copied().chain(own) {
                for (now, then) in clock.iter_mut().zip(&clocks[earlier]) {
                    *now = (*now).max(*then);
                }
                let queue = self.units[earlier].queue;
                clock[queue] = clock[queue].max(Some(earlier));
            }
            clocks.push(clock);
        }
        clocks
    }
}
