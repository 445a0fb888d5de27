//! The queue: submissions in order.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use orlop_backend::{
    Buffer, Claim, Claims, DeviceError, Event, PendingRead, Program, Queue, ReadRing, RunOptions,
    StoredTensor, get_unstaged, set_unstaged,
};
use orlop_graph::AccessKind;

use crate::buffer::words;
use crate::gpu::Gpu;
use crate::program::WgpuProgram;
use crate::staging::MappedBlock;

/// Limit on runs in flight.
const MAX_IN_FLIGHT: usize = 1024;

/// Runs on a device, in order. All queues of a device share the driver's single queue.
pub(crate) struct WgpuQueue {
    gpu: Arc<Gpu>,
    in_flight: Vec<InFlight>,
    reads: ReadRing<MappedBlock>,
}

/// A submitted run. It keeps its buffers alive and claimed.
struct InFlight {
    program: Arc<dyn Program>,
    submitted: wgpu::SubmissionIndex,
    claims: Claims,
}

impl WgpuQueue {
    pub(crate) fn new(gpu: &Arc<Gpu>, reads: &ReadRing<MappedBlock>) -> WgpuQueue {
        WgpuQueue { gpu: Arc::clone(gpu), in_flight: Vec::new(), reads: reads.clone() }
    }

    /// A claim to a buffer, for commands that are submitted while it is held: the driver runs submissions in order.
    fn claim(&mut self, buffer: &dyn Buffer, kind: AccessKind) -> Result<Claim, DeviceError> {
        let busy = match Claim::take(buffer, kind) {
            Err(busy @ DeviceError::Busy { .. }) => busy,
            other => return other,
        };
        let kept = self.in_flight.iter().map(|run| &run.claims);
        if let Some(own) = Claims::held_alone(kept, buffer, kind) {
            // SAFETY: `lend` asks that no other claim lent from the same run is used meanwhile without order: there is none, as
            // each has a clone of the run's claims, and runs of this queue are submitted before.
            return unsafe { own.lend(buffer, kind) };
        }
        if self.in_flight.is_empty() {
            return Err(busy);
        }
        self.finish()?;
        Claim::take(buffer, kind)
    }

    /// Waits for all runs and releases their claims.
    fn finish(&mut self) -> Result<(), DeviceError> {
        let waited = match self.in_flight.last() {
            Some(last) => self.gpu.wait(Some(last.submitted.clone())),
            None => self.gpu.check(),
        };
        let runs = std::mem::take(&mut self.in_flight);
        waited?;
        let mut first = Ok(());
        for (index, run) in runs.iter().enumerate() {
            // The last run of a program also reports the errors of earlier ones.
            let again = runs[index + 1..].iter().any(|later| Arc::ptr_eq(&later.program, &run.program));
            if !again {
                let program = WgpuProgram::of(&run.program, &self.gpu)?;
                let outcome = program.outcome(&run.submitted);
                first = first.and(outcome);
            }
        }
        first
    }
}

impl Queue for WgpuQueue {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        self.gpu.check()?;
        let own = WgpuProgram::of(program, &self.gpu)?;
        own.touches().iter().try_for_each(|(buffer, kind)| claims.check(&**buffer, *kind))?;
        if options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
            return Err(DeviceError::Cancelled { step: 0, steps: own.steps() });
        }
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            self.finish()?;
        }
        let mut staging = self.gpu.staging()?;
        let mut encoder = self.gpu.encoder();
        staging.encode(&mut encoder);
        own.encode(&mut encoder);
        let submitted = self.gpu.submit(encoder);
        staging.turn(&submitted);
        drop(staging);
        self.in_flight.push(InFlight { program: Arc::clone(program), submitted, claims: claims.clone() });
        self.gpu.check()
    }

    fn set(&mut self, to: &StoredTensor, offset: u64, bytes: &[u8]) -> Result<Arc<dyn Event>, DeviceError> {
        let buffer = &*to.slot().buffer;
        if self.gpu.raw(buffer.gate()).is_none() {
            return set_unstaged(self, to, offset, bytes);
        }
        let place = to.place(offset, bytes.len() as u64)?;
        let claim = self.claim(buffer, AccessKind::Write)?;
        // Waits only if the ring is full, or for the words that the bytes share with others.
        buffer.write(&claim, place.start, bytes)?;
        self.record()
    }

    fn get(&mut self, from: &StoredTensor, offset: u64, bytes: u64) -> Result<PendingRead, DeviceError> {
        let buffer = &*from.slot().buffer;
        let Some(raw) = self.gpu.raw(buffer.gate()) else {
            return get_unstaged(self, from, offset, bytes);
        };
        let place = from.place(offset, bytes)?;
        let claim = self.claim(buffer, AccessKind::Read)?;
        let wide = if place.is_empty() { place.clone() } else { words(place.clone()) };
        let read = self.reads.read(wide.end - wide.start, |block, range| {
            block.start(&raw, wide.start + range.start, range.end - range.start)
        })?;
        drop(claim);
        let first = (place.start - wide.start) as usize;
        let read = read.part(first..first + bytes as usize);
        Ok(PendingRead::new(self.record()?, Arc::new(read)))
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        self.gpu.check()?;
        self.gpu.staging()?.flush(&self.gpu);
        let passed = Arc::new(OnceLock::new());
        let noted = Arc::clone(&passed);
        self.gpu.queue.on_submitted_work_done(move || _ = noted.set(Instant::now()));
        let submitted = self.gpu.last_submission();
        Ok(Arc::new(WgpuEvent { gpu: Arc::clone(&self.gpu), passed, submitted }))
    }

    fn wait(&mut self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        // An adapter runs all submissions in order, across queues.
        let own = event.as_any().downcast_ref::<WgpuEvent>();
        if own.is_some_and(|event| Arc::ptr_eq(&event.gpu, &self.gpu)) {
            return self.gpu.check();
        }
        event.wait()
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.gpu.staging()?.flush(&self.gpu);
        self.finish()
    }
}

impl Drop for WgpuQueue {
    fn drop(&mut self) {
        // Finish before the claims are released.
        let _ = self.finish();
    }
}

impl fmt::Debug for WgpuQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a queue of {} with {} runs in flight", self.gpu.name, self.in_flight.len())
    }
}

/// A point in a device's submissions.
#[derive(Debug)]
struct WgpuEvent {
    gpu: Arc<Gpu>,
    passed: Arc<OnceLock<Instant>>,
    submitted: Option<wgpu::SubmissionIndex>,
}

impl Event for WgpuEvent {
    fn is_done(&self) -> bool {
        // Drivers call back during a poll; a lost device never does.
        self.passed.get().is_some()
            || self.gpu.device.poll(wgpu::PollType::Poll).is_err()
            || self.passed.get().is_some()
            || self.gpu.is_lost()
    }

    fn wait(&self) -> Result<(), DeviceError> {
        if self.passed.get().is_none() {
            self.gpu.wait(self.submitted.clone())?;
        }
        self.gpu.check()
    }

    fn passed_at(&self) -> Option<Instant> {
        self.passed.get().copied()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
