//! Runs in flight: started, waited for, and what became of them.

use std::fmt;

use orlop_alloc::Error as AllocError;
use orlop_backend::{DeviceError, RunOptions};
use orlop_graph::TensorId;

use crate::error::failed;
use crate::session::prepared::{Prepared, State};
use crate::session::run::{Failed, Observe, Submission};
use crate::{DeviceId, Error, PlanId, Session, SplitId, Timeline};

/// A run that was started; prints as `r7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId {
    pub(crate) plan: PlanId,
    pub(crate) slot: usize,
    number: u64,
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.number)
    }
}

impl Session {
    /// Runs a graph once on all its devices and waits for them.
    ///
    /// # Errors
    /// [`Error::InputNotSet`] and [`DeviceError::Busy`], which change nothing; [`Error::Device`] with the device and
    /// split that failed, or [`Error::DeviceLost`]: all devices have stopped then, and inputs must be set anew.
    pub fn run(&mut self, plan: PlanId, options: &RunOptions) -> Result<(), Error> {
        let run = self.launch(plan, options, None, false)?;
        self.wait(run)
    }

    /// As [`Session::run`]; `observe` sees each result that was to be observed ([`crate::Constraints::observed`]) as soon as
    /// it is computed, and ends the run by returning `false`.
    ///
    /// # Errors
    /// As there; [`DeviceError::Cancelled`] if `observe` ended the run, [`Error::ObserverPanicked`] if it panicked.
    pub fn run_observed(
        &mut self,
        plan: PlanId,
        options: &RunOptions,
        observe: &mut dyn FnMut(TensorId, &[u8]) -> bool,
    ) -> Result<(), Error> {
        self.drain();
        let run = self.launch(plan, options, Some(observe), false)?;
        self.wait(run)
    }

    /// As [`Session::run`], and says which device did what when. Every piece of work is timed from its beginning to its
    /// completion; that costs two events each.
    ///
    /// # Errors
    /// As there.
    pub fn run_timed(&mut self, plan: PlanId, options: &RunOptions) -> Result<Timeline, Error> {
        self.drain();
        let run = self.launch(plan, options, None, true)?;
        self.wait(run)?;
        let prepared = self.get_prepared(plan)?;
        let routes = prepared.compiled.as_ref().and_then(|compiled| compiled.routes.as_deref());
        let pieces = &prepared.slots[run.slot].marks.pieces;
        Ok(Timeline::new(pieces, &prepared.graph, &self.machine, &prepared.planned, routes))
    }

    /// Starts a run and returns while devices work on it. As many as [`crate::SessionOptions::depth`] may be in flight, all
    /// of one graph; each has inputs and results of its own, so the next run's inputs can be set meanwhile.
    ///
    /// # Errors
    /// As [`Session::run`] as far as it is known yet, and [`Error::InFlight`] if the run that used this one's place has
    /// not been waited for.
    pub fn start(&mut self, plan: PlanId, options: &RunOptions) -> Result<RunId, Error> {
        self.launch(plan, options, None, false)
    }

    /// Waits for a run and those before it. Its results can be read then ([`Session::get_of`]) until an input of the run
    /// that takes its place is set.
    ///
    /// # Errors
    /// As [`Session::run`]; [`Error::UnknownRun`] if another took its place.
    pub fn wait(&mut self, run: RunId) -> Result<(), Error> {
        loop {
            let state = self.prepared.get(&run.plan).map(|prepared| &prepared.slots[run.slot].state);
            match state {
                Some(State::Done(number, outcome)) if *number == run.number => return outcome.clone(),
                Some(State::InFlight(number)) if *number == run.number => self.settle(),
                _ => return Err(Error::UnknownRun { run: run.number }),
            }
        }
    }

    /// Whether a run's results can be read.
    pub(crate) fn is_done(&self, run: RunId) -> bool {
        let slot = self.prepared.get(&run.plan).map(|prepared| &prepared.slots[run.slot]);
        slot.is_some_and(|slot| {
            slot.readable && matches!(slot.state, State::Done(number, Ok(())) if number == run.number)
        })
    }

    /// Waits for all runs in flight. What became of them is kept for [`Session::wait`].
    pub(crate) fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            self.settle();
        }
    }

    /// Makes the arenas a plan's own: whatever others left there is gone.
    pub(crate) fn occupy(&mut self, plan: PlanId) {
        if self.occupant == Some(plan) {
            return;
        }
        self.drain();
        if let Some(other) = self.occupant.replace(plan).and_then(|other| self.prepared.get_mut(&other)) {
            other.forget_contents();
        }
    }

    fn launch(
        &mut self,
        plan: PlanId,
        options: &RunOptions,
        observe: Option<Observe<'_>>,
        timed: bool,
    ) -> Result<RunId, Error> {
        self.room_for(plan)?;
        let prepared = self.get_prepared(plan)?;
        let slot = prepared.next;
        if matches!(prepared.slots[slot].state, State::InFlight(_)) {
            return Err(Error::InFlight { runs: prepared.slots.len() });
        }
        prepared.slots[slot].inputs.check(&prepared.graph)?;
        if prepared.compiled.is_none() {
            let compiled = self.compile(prepared)?;
            self.get_prepared_mut(plan)?.compiled = Some(compiled);
        }
        self.occupy(plan);
        self.bind_places(plan, slot)?;
        self.refresh_residents(plan)?;
        let idle = self.in_flight.is_empty();
        let number = self.runs;
        let clock = self.tick();
        let Some(prepared) = self.prepared.get_mut(&plan) else { return Err(AllocError::NotReserved.into()) };
        let Some(compiled) = &mut prepared.compiled else { return Err(AllocError::NotReserved.into()) };
        if idle {
            compiled.claim().map_err(AllocError::from)?;
            if timed && let Err(error) = compiled.find_routes() {
                compiled.release();
                return Err(AllocError::from(error).into());
            }
        }
        let Some(claims) = &compiled.claims else { return Err(AllocError::NotReserved.into()) };
        self.runs += 1;
        prepared.used = clock;
        prepared.latest = prepared.latest.filter(|latest| *latest != slot);
        prepared.next = (slot + 1) % prepared.slots.len();
        let own = &mut prepared.slots[slot];
        own.inputs.forget();
        (own.state, own.readable) = (State::Idle, false);
        let mut marks = std::mem::take(&mut own.marks);
        marks.clear(prepared.planned.schedule.splits.len());
        let before = self.in_flight.back().map(|(slot, _)| &prepared.slots[*slot].marks);
        let submission = Submission {
            planned: &prepared.planned,
            bound: &compiled.slots[slot],
            queues: &mut self.queues,
            claims,
            options,
            marks: &mut marks,
            before,
            awaited: &prepared.awaited,
            timed,
        };
        let submitted = submission.submit(observe);
        prepared.slots[slot].marks = marks;
        prepared.slots[slot].state = State::InFlight(number);
        self.in_flight.push_back((slot, number));
        match submitted {
            Ok(()) => Ok(RunId { plan, slot, number }),
            Err(refused) => Err(self.halt(Some(refused)).unwrap_or(AllocError::NotReserved.into())),
        }
    }

    /// Waits for the oldest run in flight.
    fn settle(&mut self) {
        let Some((slot, number)) = self.in_flight.front().copied() else { return };
        let ended_well = |prepared: &Prepared| {
            prepared.slots[slot].marks.ended.iter().flatten().all(|mark| mark.event.wait().is_ok())
        };
        // The last one needs no events: its queues have nothing else to do, and are left idle.
        if self.in_flight.len() == 1 || !self.occupied().is_some_and(ended_well) {
            self.halt(None);
            return;
        }
        self.in_flight.pop_front();
        self.note_outcome(slot, number, Ok(()));
    }

    /// Waits until no device has anything left to do, and notes what became of every run in flight. `refused` is the
    /// youngest, if it did not even get to its devices as a whole. Returns the youngest's error.
    fn halt(&mut self, mut refused: Option<Failed>) -> Option<Error> {
        let splits = self.occupied().map_or(0, |prepared| prepared.planned.schedule.splits.len());
        let end = SplitId::new(splits);
        let mut met = None;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if let Err(source) = queue.sync() {
                met.get_or_insert_with(|| Failed::new(DeviceId(index), end, source));
            }
        }
        let mut error = None;
        while let Some((slot, number)) = self.in_flight.pop_front() {
            let youngest = self.in_flight.is_empty();
            let failure = if youngest { refused.take().or(met.take()) } else { None };
            let outcome = self.outcome(slot, failure);
            error = outcome.as_ref().err().cloned();
            self.note_outcome(slot, number, outcome);
        }
        if let Some(compiled) = self.occupied_mut().and_then(|prepared| prepared.compiled.as_mut()) {
            compiled.release();
        }
        error
    }

    fn note_outcome(&mut self, slot: usize, number: u64, outcome: Result<(), Error>) {
        let Some(prepared) = self.occupied_mut() else { return };
        if outcome.is_ok() {
            prepared.latest = Some(slot);
        }
        prepared.slots[slot].readable = outcome.is_ok();
        prepared.slots[slot].state = State::Done(number, outcome);
    }

    /// The plan whose runs are in flight.
    fn occupied(&self) -> Option<&Prepared> {
        self.prepared.get(&self.occupant?)
    }

    fn occupied_mut(&mut self) -> Option<&mut Prepared> {
        self.prepared.get_mut(&self.occupant?)
    }

    /// How the run of a slot ended, all queues being idle.
    fn outcome(&self, slot: usize, mut failure: Option<Failed>) -> Result<(), Error> {
        let Some(prepared) = self.occupied() else { return Ok(()) };
        let earlier = |split: SplitId| failure.as_ref().is_none_or(|first| split < first.split);
        let origin = prepared.slots[slot].marks.first_error().filter(|(split, _)| earlier(*split));
        if let Some((split, source)) = origin {
            let device = prepared.planned.schedule[split].device;
            failure = Some(Failed::new(device, split, source));
        }
        let Some(failure) = failure else { return Ok(()) };
        if failure.observer_panicked {
            return Err(Error::ObserverPanicked { split: failure.split });
        }
        if let DeviceError::Lost { device, .. } = &*failure.source {
            return Err(Error::DeviceLost {
                device: device.clone(),
                split: failure.split,
                tensors: self.lost_with(prepared, device),
                source: failure.source,
            });
        }
        Err(failed(self.machine.name(failure.device), failure.split, *failure.source))
    }

    fn refresh_residents(&mut self, plan: PlanId) -> Result<(), Error> {
        let stale = |session: &Session| {
            let prepared = session.prepared.get(&plan);
            prepared
                .is_some_and(|prepared| prepared.resident.values().any(|n| session.residents.is_stale(*n)))
        };
        if !stale(self) {
            return Ok(());
        }
        // Runs in flight read what is to be written.
        self.drain();
        let Some(prepared) = self.prepared.get(&plan) else { return Ok(()) };
        for (transfer, number) in &prepared.resident {
            let transfer = &prepared.planned.schedule[*transfer];
            let name = self.machine.name(transfer.to);
            self.residents.refresh(*number).map_err(|source| failed(name, transfer.split, source))?;
        }
        Ok(())
    }
}
