//! Queues of a test device: one that works at once, and one with a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use orlop_backend::{Claims, DeviceError, Event, Program, Queue, RunOptions, StoredTensor};
use orlop_graph::AccessKind;

use super::builder::Settings;
use super::event::Signal;
use super::ledger::Ledger;
use super::program::TestProgram;
use super::worker::Worker;

/// What both kinds of queue do on the caller's thread.
#[derive(Debug)]
struct Front {
    settings: Arc<Settings>,
    ledger: Arc<Ledger>,
}

impl Front {
    /// The checks of a program before it is queued.
    fn admit(&self, program: &Arc<dyn Program>, claims: &Claims) -> Result<(), DeviceError> {
        self.ledger.check()?;
        let program = TestProgram::of(program, &self.ledger, &self.settings.name)?;
        program.touches().iter().try_for_each(|(buffer, kind)| claims.check(&**buffer, *kind))
    }

    fn admit_copy(&self, from: &StoredTensor, to: &StoredTensor, claims: &Claims) -> Result<(), DeviceError> {
        self.ledger.check()?;
        let (a, b) = (from.desc(), to.desc());
        if a.dtype != b.dtype || a.extents != b.extents {
            let (from, to) = (from.name().to_owned(), to.name().to_owned());
            return Err(DeviceError::LayoutMismatch { from, to, descs: Box::new([*a, *b]) });
        }
        let target = &*to.slot().buffer;
        if !target.buffer_type().is_host() && self.ledger.behind(target).is_none() {
            return Err(DeviceError::Foreign {
                what: "the destination of a copy",
                owner: target.buffer_type().name().to_owned(),
                device: self.settings.name.to_string(),
            });
        }
        claims.check(&*from.slot().buffer, AccessKind::Read)?;
        claims.check(target, AccessKind::Write)
    }

    /// The host's time on the virtual clock.
    fn host_time(&self) -> f64 {
        self.settings.clock.as_ref().map_or(0.0, |(clock, _)| clock.host_seconds())
    }

    fn host_waited_until(&self, time: f64) {
        if let Some((clock, _)) = &self.settings.clock {
            clock.host_waited_until(time);
        }
    }
}

/// A queue of a device: asynchronous if its facts say so.
pub(super) fn open(
    settings: &Arc<Settings>,
    ledger: &Arc<Ledger>,
    inner: Box<dyn Queue>,
) -> Result<Box<dyn Queue>, DeviceError> {
    let front = Front { settings: Arc::clone(settings), ledger: Arc::clone(ledger) };
    let worker = Worker::new(settings, ledger, inner);
    if !settings.facts.asynchronous {
        return Ok(Box::new(Immediate { front, worker }));
    }
    let (jobs, given) = channel();
    let thread = std::thread::Builder::new().name(settings.name.to_string());
    let thread =
        thread.spawn(move || run(worker, &given)).map_err(|error| ledger.lost(&error.to_string()))?;
    Ok(Box::new(Beside { front, jobs: Some(jobs), thread: Some(thread) }))
}

/// A synchronous queue.
#[derive(Debug)]
struct Immediate {
    front: Front,
    worker: Worker,
}

impl Queue for Immediate {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        self.front.admit(program, claims)?;
        // SAFETY: as our caller promises.
        unsafe { self.worker.submit(program, claims, options, self.front.host_time()) }
    }

    unsafe fn copy(
        &mut self,
        from: &StoredTensor,
        to: &StoredTensor,
        claims: &Claims,
    ) -> Result<(), DeviceError> {
        self.front.admit_copy(from, to, claims)?;
        // SAFETY: as our caller promises.
        unsafe { self.worker.copy(from, to, claims, self.front.host_time()) }
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        self.front.ledger.check()?;
        let (signal, event) = Signal::new(&self.front.settings);
        signal.pass(Ok(self.worker.now().max(self.front.host_time())));
        Ok(event)
    }

    fn wait(&mut self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        self.front.ledger.check()?;
        self.worker.wait(event)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.front.ledger.check()?;
        self.front.host_waited_until(self.worker.now());
        Ok(())
    }
}

/// A piece of work for a queue's thread. It keeps all it touches claimed and alive until it is done.
enum Job {
    Submit { program: Arc<dyn Program>, claims: Claims, options: RunOptions, given: f64 },
    Copy { from: StoredTensor, to: StoredTensor, claims: Claims, given: f64 },
    Record { signal: Signal, given: f64 },
    Wait(Arc<dyn Event>),
    Sync(Sender<Result<f64, DeviceError>>),
}

/// An asynchronous queue. Dropping it waits for its work.
#[derive(Debug)]
struct Beside {
    front: Front,
    /// `None` once the queue is being dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    fn give(&self, job: Job) -> Result<(), DeviceError> {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(()) } else { Err(self.thread_gone()) }
    }

    fn thread_gone(&self) -> DeviceError {
        self.front.ledger.lost("the thread of a queue is gone")
    }
}

impl Queue for Beside {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        self.front.admit(program, claims)?;
        self.give(Job::Submit {
            program: Arc::clone(program),
            claims: claims.clone(),
            options: options.clone(),
            given: self.front.host_time(),
        })
    }

    unsafe fn copy(
        &mut self,
        from: &StoredTensor,
        to: &StoredTensor,
        claims: &Claims,
    ) -> Result<(), DeviceError> {
        self.front.admit_copy(from, to, claims)?;
        self.give(Job::Copy {
            from: from.clone(),
            to: to.clone(),
            claims: claims.clone(),
            given: self.front.host_time(),
        })
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        self.front.ledger.check()?;
        let (signal, event) = Signal::new(&self.front.settings);
        self.give(Job::Record { signal, given: self.front.host_time() })?;
        Ok(event)
    }

    fn wait(&mut self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        self.front.ledger.check()?;
        self.give(Job::Wait(Arc::clone(event)))
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        let (reply, answer) = channel();
        self.give(Job::Sync(reply))?;
        let time = answer.recv().unwrap_or_else(|_| Err(self.thread_gone()))?;
        self.front.host_waited_until(time);
        self.front.ledger.check()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Work that panics is an error at `sync`; nothing else of the thread's can.
            let _ = thread.join();
        }
    }
}

/// A queue's thread, until the queue is dropped.
fn run(mut worker: Worker, given: &Receiver<Job>) {
    // Of the first piece that failed since the last sync; what comes after it is skipped.
    let mut failure: Option<DeviceError> = None;
    while let Ok(job) = given.recv() {
        let done = match job {
            Job::Record { signal, given } => {
                let failed = failure.clone();
                signal.pass(failed.map_or_else(|| Ok(worker.now().max(given)), Err));
                continue;
            }
            Job::Sync(reply) => {
                // The receiver may be gone.
                let _ = reply.send(failure.take().map_or_else(|| Ok(worker.now()), Err));
                continue;
            }
            _ if failure.is_some() => continue,
            Job::Wait(event) => worker.wait(&event),
            Job::Submit { program, claims, options, given } => guarded("submit", || {
                // SAFETY: `submit` asks what `Queue::submit` does, which the caller that gave the job promised.
                unsafe { worker.submit(&program, &claims, &options, given) }
            }),
            Job::Copy { from, to, claims, given } => guarded("copy", || {
                // SAFETY: as above.
                unsafe { worker.copy(&from, &to, &claims, given) }
            }),
        };
        failure = done.err();
    }
}

/// A panic must not leave others waiting for this thread.
fn guarded(op: &str, work: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(DeviceError::KernelPanicked { op: op.to_owned(), tensor: "work on a queue".to_owned() })
    })
}
