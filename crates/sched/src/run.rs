use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use orlop_backend::{Claims, DeviceError, Event, Queue, RunOptions};
use orlop_graph::{AccessKind, TensorId};

use crate::DeviceIx;
use crate::compile::Compiled;
use crate::session::Prepared;

/// Which device failed at which split.
pub(crate) struct Failed {
    pub(crate) device: DeviceIx,
    pub(crate) split: usize,
    pub(crate) source: Box<DeviceError>,
    pub(crate) observer_panicked: bool,
}

/// Runs every split, and comes back when no device has anything left to do.
pub(crate) fn run_all(
    prepared: &Prepared,
    compiled: &Compiled,
    queues: &mut [Box<dyn Queue>],
    claims: &Claims,
    options: &RunOptions,
    observe: &mut dyn FnMut(TensorId, &[u8]) -> bool,
) -> Result<(), Failed> {
    let splits = &prepared.schedule.splits;
    let mut events = Vec::with_capacity(splits.len());
    let mut first = run_splits(prepared, compiled, queues, claims, options, observe, &mut events).err();
    // Whatever happened, nothing may be left running in memory that the next run uses.
    for (index, queue) in queues.iter_mut().enumerate() {
        if let Err(source) = queue.sync() {
            first.get_or_insert(Failed {
                device: DeviceIx(index),
                split: splits.len(),
                source: Box::new(source),
                observer_panicked: false,
            });
        }
    }
    let Some(mut first) = first else { return Ok(()) };
    // An error travels along events to those who wait, and those are always later splits. So the first event with one
    // tells whose it is.
    let origin = events.iter().enumerate().find_map(|(split, event)| {
        let outcome = if event.is_done() { event.wait() } else { Ok(()) };
        outcome.err().map(|source| (split, source))
    });
    if let Some((split, source)) = origin.filter(|(split, _)| *split < first.split) {
        let (device, source) = (splits[split].device, Box::new(source));
        first = Failed { device, split, source, observer_panicked: false };
    }
    Err(first)
}

/// Gives every split to its device's queue, in order, behind the events it waits for.
fn run_splits(
    prepared: &Prepared,
    compiled: &Compiled,
    queues: &mut [Box<dyn Queue>],
    claims: &Claims,
    options: &RunOptions,
    observe: &mut dyn FnMut(TensorId, &[u8]) -> bool,
    events: &mut Vec<Arc<dyn Event>>,
) -> Result<(), Failed> {
    let schedule = &prepared.schedule;
    for (index, part) in schedule.splits.iter().enumerate() {
        let failed = |source| Failed {
            device: part.device,
            split: index,
            source: Box::new(source),
            observer_panicked: false,
        };
        if options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
            return Err(failed(DeviceError::Cancelled { step: index, steps: schedule.splits.len() }));
        }
        let queue = &mut queues[part.device.index()];
        for earlier in &part.waits {
            queue.wait(&events[*earlier]).map_err(failed)?;
        }
        for (from, to) in part.copies.iter().filter_map(|copy| compiled.copies[*copy].as_ref()) {
            // SAFETY: `copy` asks that conflicting work on other queues is ordered by events: the source was written
            // by splits waited for above, its memory is held in its own arena until a split that waits for this one,
            // and only this queue writes the destination's arena.
            unsafe { queue.copy(from, to, claims) }.map_err(failed)?;
        }
        // SAFETY: as above: every edge between nodes of two devices is in `waits`, and arenas are planned on the steps
        // of their own queues.
        unsafe { queue.submit(&compiled.programs[index], claims, options) }.map_err(failed)?;
        events.push(queue.record().map_err(failed)?);
        if let (Some(id), Some(stored)) = (part.observed, &compiled.observed[index]) {
            queue.sync().map_err(failed)?;
            let mut bytes = vec![0; stored.desc().bytes() as usize];
            // SAFETY: `lend` asks that nobody writes these bytes meanwhile: this queue, the only one that writes its
            // arena, is idle.
            let claim = unsafe { claims.lend(&*stored.slot().buffer, AccessKind::Read) }.map_err(failed)?;
            stored.slot().buffer.read(&claim, stored.slot().offset, &mut bytes).map_err(failed)?;
            let cancelled = DeviceError::Cancelled { step: index + 1, steps: schedule.splits.len() };
            match catch_unwind(AssertUnwindSafe(|| observe(id, &bytes))) {
                Ok(true) => {}
                Ok(false) => return Err(failed(cancelled)),
                Err(_) => return Err(Failed { observer_panicked: true, ..failed(cancelled) }),
            }
        }
    }
    Ok(())
}
