//! One run on its way to the queues.

use std::panic::{AssertUnwindSafe, catch_unwind};

use orlop_backend::{Claims, DeviceError, Queue, RunOptions, StepClock, StoredTensor};
use orlop_graph::{AccessKind, TensorId};

use crate::session::compile::Bound;
use crate::session::marks::{Mark, Marks, Piece};
use crate::{Command, DeviceId, Planned, Point, SplitId, TransferId};

/// Which device failed at which split.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) device: DeviceId,
    pub(crate) split: SplitId,
    pub(crate) source: Box<DeviceError>,
    pub(crate) observer_panicked: bool,
}

impl Failed {
    pub(crate) fn new(device: DeviceId, split: SplitId, source: DeviceError) -> Failed {
        Failed { device, split, source: Box::new(source), observer_panicked: false }
    }
}

/// Sees results as they are computed; `false` ends the run.
pub(crate) type Observe<'a> = &'a mut dyn FnMut(TensorId, &[u8]) -> bool;

/// One run on its way to the queues.
pub(crate) struct Submission<'a> {
    pub(crate) planned: &'a Planned,
    pub(crate) bound: &'a Bound,
    pub(crate) queues: &'a mut [Box<dyn Queue>],
    pub(crate) claims: &'a Claims,
    pub(crate) options: &'a RunOptions,
    pub(crate) marks: &'a mut Marks,
    /// The points of the run before, if that is still in flight.
    pub(crate) before: Option<&'a Marks>,
    /// Which splits and whose transfers are waited for.
    pub(crate) awaited: &'a [Awaited],
    /// Whether every piece of work is timed.
    pub(crate) timed: bool,
}

/// What others wait for of a split.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Awaited {
    pub(crate) end: bool,
    pub(crate) transfers: bool,
}

impl Submission<'_> {
    /// Gives every split to its device's queue, in order, behind the events it waits for.
    pub(crate) fn submit(mut self, mut observe: Option<Observe<'_>>) -> Result<(), Failed> {
        let splits = self.planned.schedule.splits.len();
        for id in self.planned.schedule.ids() {
            let split = &self.planned.schedule[id];
            let failed = |source| Failed::new(split.device, id, source);
            if self.options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
                return Err(failed(DeviceError::Cancelled { step: id.index(), steps: splits }));
            }
            self.submit_split(id).map_err(failed)?;
            let (Some(seen), Some(stored)) = (split.observed, &self.bound.observed[id.index()]) else {
                continue;
            };
            let Some(observe) = observe.as_mut() else { continue };
            let bytes = self.read(split.device, stored).map_err(failed)?;
            let cancelled = DeviceError::Cancelled { step: id.index() + 1, steps: splits };
            match catch_unwind(AssertUnwindSafe(|| observe(seen, &bytes))) {
                Ok(true) => {}
                Ok(false) => return Err(failed(cancelled)),
                Err(_) => return Err(Failed { observer_panicked: true, ..failed(cancelled) }),
            }
        }
        Ok(())
    }

    fn submit_split(&mut self, id: SplitId) -> Result<(), DeviceError> {
        let Planned { schedule, cross_run, .. } = self.planned;
        let queue = &mut *self.queues[schedule[id].device.index()];
        if let Some(before) = self.before {
            for wait in cross_run.iter().filter(|wait| wait.split == id) {
                let list = if wait.copies_only { &before.copied } else { &before.ended };
                if let Some(mark) = &list[wait.earlier.index()] {
                    queue.wait(&mark.event)?;
                }
            }
        }
        let awaited = self.awaited[id.index()];
        for command in schedule.commands_of(id) {
            let pieces = self.timed.then_some(&mut self.marks.pieces);
            match command {
                Command::Wait { on, .. } => {
                    if let Some(mark) = &self.marks.ended[on.index()] {
                        queue.wait(&mark.event)?;
                    }
                }
                Command::Transfer { transfer, .. } => {
                    let Some((from, to)) = &self.bound.transfers[transfer.index()] else { continue };
                    let make = |queue: &mut dyn Queue, _: Option<&StepClock>| {
                        // SAFETY: `copy` asks that conflicting work on other queues is ordered by events: the source
                        // was written by splits waited for above or earlier on this queue, its memory is held in its
                        // own arena until a split that waits for this one (of this run or the next), and only this
                        // queue writes the destination's arena.
                        unsafe { queue.copy(from, to, self.claims) }
                    };
                    piece(queue, pieces, id, Some(transfer), make)?;
                }
                Command::Compute { .. } => {
                    let submit = |queue: &mut dyn Queue, options: &RunOptions| {
                        // SAFETY: as above: every edge between nodes of two devices is a wait of the schedule, what a
                        // run may overwrite of the run before is a cross-run wait, and arenas are planned on the steps
                        // of their own queues.
                        unsafe { queue.submit(&self.bound.programs[id.index()], self.claims, options) }
                    };
                    let compute = |queue: &mut dyn Queue, clock: Option<&StepClock>| match clock.cloned() {
                        None => submit(queue, self.options),
                        clock => submit(queue, &RunOptions { clock, ..self.options.clone() }),
                    };
                    piece(queue, pieces, id, None, compute)?;
                }
                Command::Record { point: Point::Transferred, .. } if awaited.transfers => {
                    self.marks.copied[id.index()] = Some(Mark::record(queue)?);
                }
                Command::Record { point: Point::Ended, .. } if awaited.end => {
                    self.marks.ended[id.index()] = Some(Mark::record(queue)?);
                }
                Command::Record { .. } => {}
            }
        }
        Ok(())
    }

    /// A result that was just given to a queue.
    fn read(&mut self, device: DeviceId, stored: &StoredTensor) -> Result<Vec<u8>, DeviceError> {
        self.queues[device.index()].sync()?;
        let mut bytes = vec![0; stored.desc().bytes() as usize];
        // SAFETY: `lend` asks that these bytes are not written meanwhile: this queue, the only one that writes its arena,
        // is idle.
        let claim = unsafe { self.claims.lend(&*stored.slot().buffer, AccessKind::Read) }?;
        stored.slot().buffer.read(&claim, stored.slot().offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// Does a piece of work, and notes when if the run is timed.
fn piece(
    queue: &mut dyn Queue,
    pieces: Option<&mut Vec<Piece>>,
    split: SplitId,
    transfer: Option<TransferId>,
    work: impl FnOnce(&mut dyn Queue, Option<&StepClock>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let Some(pieces) = pieces else { return work(queue, None) };
    let clock = StepClock::default();
    let begin = Mark::timed(queue)?;
    work(queue, Some(&clock))?;
    let end = Mark::timed(queue)?;
    pieces.push(Piece { split, transfer, begin, end, clock });
    Ok(())
}
