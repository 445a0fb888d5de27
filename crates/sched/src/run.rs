use std::panic::{AssertUnwindSafe, catch_unwind};

use orlop_backend::{Claims, DeviceError, Queue, RunOptions, StepClock, StoredTensor};
use orlop_graph::{AccessKind, TensorId};

use crate::compile::Bound;
use crate::marks::{Mark, Marks, Piece};
use crate::{DeviceId, Planned};

/// Which device failed at which split.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) device: DeviceId,
    pub(crate) split: usize,
    pub(crate) source: Box<DeviceError>,
    pub(crate) observer_panicked: bool,
}

impl Failed {
    pub(crate) fn new(device: DeviceId, split: usize, source: DeviceError) -> Failed {
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
    /// Which splits and whose copies somebody waits for.
    pub(crate) awaited: &'a [Awaited],
    /// Whether every piece of work is timed.
    pub(crate) timed: bool,
}

/// What others wait for of a split.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Awaited {
    pub(crate) end: bool,
    pub(crate) copies: bool,
}

impl Submission<'_> {
    /// Gives every split to its device's queue, in order, behind the events it waits for.
    pub(crate) fn submit(mut self, mut observe: Option<Observe<'_>>) -> Result<(), Failed> {
        let splits = self.planned.schedule.splits.len();
        for (index, part) in self.planned.schedule.splits.iter().enumerate() {
            let failed = |source| Failed::new(part.device, index, source);
            if self.options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
                return Err(failed(DeviceError::Cancelled { step: index, steps: splits }));
            }
            self.submit_split(index).map_err(failed)?;
            let (Some(id), Some(stored)) = (part.observed, &self.bound.observed[index]) else { continue };
            let Some(observe) = observe.as_mut() else { continue };
            let bytes = self.read(part.device, stored).map_err(failed)?;
            let cancelled = DeviceError::Cancelled { step: index + 1, steps: splits };
            match catch_unwind(AssertUnwindSafe(|| observe(id, &bytes))) {
                Ok(true) => {}
                Ok(false) => return Err(failed(cancelled)),
                Err(_) => return Err(Failed { observer_panicked: true, ..failed(cancelled) }),
            }
        }
        Ok(())
    }

    fn submit_split(&mut self, index: usize) -> Result<(), DeviceError> {
        let schedule = &self.planned.schedule;
        let part = &schedule.splits[index];
        let queue = &mut *self.queues[part.device.index()];
        if let Some(before) = self.before {
            for carry in self.planned.carries.iter().filter(|carry| carry.split == index) {
                let list = if carry.copies_only { &before.copied } else { &before.ended };
                if let Some(mark) = &list[carry.earlier] {
                    queue.wait(&mark.event)?;
                }
            }
        }
        let mut waited = 0;
        for copy in &part.copies {
            let Some((from, to)) = &self.bound.copies[*copy] else { continue };
            let until = schedule.transfers[*copy].after.max(waited);
            wait_for(queue, self.marks, &part.waits[waited..until])?;
            waited = until;
            // SAFETY: `copy` asks that conflicting work on other queues is ordered by events: the source was written
            // by splits waited for above or earlier on this queue, its memory is held in its own arena until a split
            // that waits for this one (of this run or the next), and only this queue writes the destination's arena.
            let make =
                |queue: &mut dyn Queue, _: Option<&StepClock>| unsafe { queue.copy(from, to, self.claims) };
            piece(queue, self.timed.then_some(&mut self.marks.pieces), index, Some(*copy), make)?;
        }
        let awaited = self.awaited[index];
        if awaited.copies {
            self.marks.copied[index] = Some(Mark::record(queue)?);
        }
        wait_for(queue, self.marks, &part.waits[waited..])?;
        // SAFETY: as above: every edge between nodes of two devices is in `waits`, what a run may overwrite of the run
        // before is in `carries`, and arenas are planned on the steps of their own queues.
        let submit = |queue: &mut dyn Queue, options: &RunOptions| unsafe {
            queue.submit(&self.bound.programs[index], self.claims, options)
        };
        let compute = |queue: &mut dyn Queue, clock: Option<&StepClock>| match clock.cloned() {
            None => submit(queue, self.options),
            clock => submit(queue, &RunOptions { clock, ..self.options.clone() }),
        };
        piece(queue, self.timed.then_some(&mut self.marks.pieces), index, None, compute)?;
        if awaited.end {
            self.marks.ended[index] = Some(Mark::record(queue)?);
        }
        Ok(())
    }

    /// A result that was just given to a queue.
    fn read(&mut self, device: DeviceId, stored: &StoredTensor) -> Result<Vec<u8>, DeviceError> {
        self.queues[device.index()].sync()?;
        let mut bytes = vec![0; stored.desc().bytes() as usize];
        // SAFETY: `lend` asks that nobody writes these bytes meanwhile: this queue, the only one that writes its arena,
        // is idle.
        let claim = unsafe { self.claims.lend(&*stored.slot().buffer, AccessKind::Read) }?;
        stored.slot().buffer.read(&claim, stored.slot().offset, &mut bytes)?;
        Ok(bytes)
    }
}

fn wait_for(queue: &mut dyn Queue, marks: &Marks, splits: &[usize]) -> Result<(), DeviceError> {
    for mark in splits.iter().filter_map(|split| marks.ended[*split].as_ref()) {
        queue.wait(&mark.event)?;
    }
    Ok(())
}

/// Does a piece of work, and notes when if somebody wants to know.
fn piece(
    queue: &mut dyn Queue,
    pieces: Option<&mut Vec<Piece>>,
    split: usize,
    copy: Option<usize>,
    work: impl FnOnce(&mut dyn Queue, Option<&StepClock>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let Some(pieces) = pieces else { return work(queue, None) };
    let clock = StepClock::default();
    let begin = Mark::timed(queue)?;
    work(queue, Some(&clock))?;
    let end = Mark::timed(queue)?;
    pieces.push(Piece { split, copy, begin, end, clock });
    Ok(())
}
