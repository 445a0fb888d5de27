//! What a queue does with a piece of work: delays, faults, the virtual clock, the inner queue.

use std::sync::Arc;
use std::thread::sleep;

use orlop_backend::{Claims, DeviceError, Event, Program, Queue, RunOptions, StoredTensor, copy_claimed};
use orlop_graph::AccessKind;

use super::builder::Settings;
use super::clock::QueueTime;
use super::event::{TestEvent, wait_for_foreign};
use super::faults::FaultPoint;
use super::ledger::Ledger;
use super::program::TestProgram;

/// Does the work of one queue, on whatever thread it lives.
#[derive(Debug)]
pub(super) struct Worker {
    settings: Arc<Settings>,
    ledger: Arc<Ledger>,
    inner: Box<dyn Queue>,
    time: Option<QueueTime>,
}

impl Worker {
    pub(super) fn new(settings: &Arc<Settings>, ledger: &Arc<Ledger>, inner: Box<dyn Queue>) -> Worker {
        let time = settings.clock.as_ref().map(|(clock, _)| clock.queue(&settings.name));
        Worker { settings: Arc::clone(settings), ledger: Arc::clone(ledger), inner, time }
    }

    /// Runs a program that was given at a time of the virtual clock.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    pub(super) unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
        given: f64,
    ) -> Result<(), DeviceError> {
        let program = TestProgram::of(program, &self.ledger, &self.settings.name)?;
        self.ledger.begin(FaultPoint::Submit, 0)?;
        sleep(self.settings.step_delay.saturating_mul(program.steps));
        // SAFETY: `submit` asks for the same as this function does, of buffers behind those that our caller knows,
        // which have the same gates.
        let submitted = unsafe { self.inner.submit(&program.inner, claims, options) };
        let finished = self.inner.sync();
        submitted.and(finished)?;
        if let Some(time) = &mut self.time {
            time.work(given, program.seconds);
        }
        Ok(())
    }

    /// Copies a tensor, as it was given at a time of the virtual clock.
    ///
    /// # Safety
    /// As [`Queue::copy`].
    pub(super) unsafe fn copy(
        &mut self,
        from: &StoredTensor,
        to: &StoredTensor,
        claims: &Claims,
        given: f64,
    ) -> Result<(), DeviceError> {
        let bytes = from.desc().row_bytes().saturating_mul(from.desc().rows());
        self.ledger.begin(FaultPoint::Copy, bytes)?;
        sleep(self.settings.copy_delay);
        // SAFETY: `lend` asks that conflicting uses of the run's claims are ordered: this thread uses both until it returns, and
        // other queues are `copy`'s contract.
        let read = unsafe { claims.lend(&*from.slot().buffer, AccessKind::Read)? };
        // SAFETY: `lend` asks for the same as for `read`.
        let write = unsafe { claims.lend(&*to.slot().buffer, AccessKind::Write)? };
        copy_claimed(from, to, [&read, &write])?;
        self.ledger.copied(bytes);
        if let Some(time) = &mut self.time {
            let link = self.settings.facts.host_link;
            time.work(given, link.latency_seconds + bytes as f64 / link.bytes_per_second);
        }
        Ok(())
    }

    /// Waits for an event of any queue.
    pub(super) fn wait(&mut self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        let Some(own) = event.as_any().downcast_ref::<TestEvent>() else {
            return wait_for_foreign(&**event, &self.settings);
        };
        let reached = own.outcome()?;
        if let Some(time) = &mut self.time {
            time.wait_until(reached);
        }
        Ok(())
    }

    /// The queue's time on the virtual clock.
    pub(super) fn now(&self) -> f64 {
        self.time.as_ref().map_or(0.0, QueueTime::now)
    }
}
