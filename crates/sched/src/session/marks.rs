//! Points in the work of queues: events that others wait for, and times.

use std::sync::Arc;
use std::time::Instant;

use orlop_backend::{DeviceError, Event, Queue, StepClock};

use crate::{SplitId, TransferId};

/// A point in a queue's work, and when the host saw it if it did at once.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) event: Arc<dyn Event>,
    seen: Option<Instant>,
}

impl Mark {
    pub(crate) fn record(queue: &mut dyn Queue) -> Result<Mark, DeviceError> {
        let event = queue.record()?;
        Ok(Mark { event, seen: None })
    }

    /// As [`Mark::record`], with the time.
    pub(crate) fn timed(queue: &mut dyn Queue) -> Result<Mark, DeviceError> {
        let event = queue.record()?;
        let seen = event.is_done().then(Instant::now);
        Ok(Mark { event, seen })
    }

    /// When it was passed: as the device says, as the host saw, or now.
    pub(crate) fn time(&self) -> Instant {
        self.event.passed_at().or(self.seen).unwrap_or_else(Instant::now)
    }
}

/// The points of one run that others wait for, by split.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) ended: Vec<Option<Mark>>,
    pub(crate) copied: Vec<Option<Mark>>,
    /// Every piece of work of a run that is timed.
    pub(crate) pieces: Vec<Piece>,
}

/// A transfer or a split's program on its queue.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) split: SplitId,
    /// The transfer; `None` for the program.
    pub(crate) transfer: Option<TransferId>,
    pub(crate) begin: Mark,
    pub(crate) end: Mark,
    /// When its steps began.
    pub(crate) clock: StepClock,
}

impl Marks {
    /// Forgets everything, and keeps the memory.
    pub(crate) fn clear(&mut self, splits: usize) {
        for list in [&mut self.ended, &mut self.copied] {
            list.clear();
            list.resize(splits, None);
        }
        self.pieces.clear();
    }

    /// The first split that went wrong. An error travels along events to those who wait, and those are always later
    /// splits.
    pub(crate) fn first_error(&self) -> Option<(SplitId, DeviceError)> {
        self.ended.iter().enumerate().find_map(|(split, mark)| {
            let event = &mark.as_ref()?.event;
            let outcome = if event.is_done() { event.wait() } else { Ok(()) };
            outcome.err().map(|source| (SplitId::new(split), source))
        })
    }
}
