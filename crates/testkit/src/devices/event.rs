//! Events of a test device's queues.

use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use orlop_backend::{DeviceError, Event};

use super::builder::Settings;

/// A point in a test device's queue.
#[derive(Debug)]
pub(super) struct TestEvent {
    settings: Arc<Settings>,
    /// How the work before it went, once it is done: its time on the virtual clock, or its error.
    outcome: Mutex<Option<Result<f64, DeviceError>>>,
    /// When it passed.
    at: OnceLock<Instant>,
    passed: Condvar,
}

impl TestEvent {
    /// Waits without telling the virtual clock's host.
    pub(super) fn outcome(&self) -> Result<f64, DeviceError> {
        let patience = self.settings.patience;
        let (outcome, _) = self
            .passed
            .wait_timeout_while(self.lock(), patience, |outcome| outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        outcome.clone().unwrap_or_else(|| Err(out_of_patience(&self.settings.name, patience)))
    }

    fn pass(&self, outcome: Result<f64, DeviceError>) {
        self.lock().get_or_insert(outcome);
        self.at.get_or_init(Instant::now);
        self.passed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<f64, DeviceError>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event for TestEvent {
    fn is_done(&self) -> bool {
        self.lock().is_some()
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let time = self.outcome()?;
        if let Some((clock, _)) = &self.settings.clock {
            clock.host_waited_until(time);
        }
        Ok(())
    }

    fn passed_at(&self) -> Option<Instant> {
        let passed = self.lock().clone()?.ok()?;
        match &self.settings.clock {
            Some((clock, _)) => Some(clock.instant(passed)),
            None => self.at.get().copied(),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Lets an event pass. If it is dropped before, the event fails, so that waiting for a queue that is gone ends.
#[derive(Debug)]
pub(super) struct Signal(Arc<TestEvent>);

impl Signal {
    pub(super) fn new(settings: &Arc<Settings>) -> (Signal, Arc<TestEvent>) {
        let event = Arc::new(TestEvent {
            settings: Arc::clone(settings),
            outcome: Mutex::default(),
            at: OnceLock::new(),
            passed: Condvar::new(),
        });
        (Signal(Arc::clone(&event)), event)
    }

    pub(super) fn pass(self, outcome: Result<f64, DeviceError>) {
        self.0.pass(outcome);
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let reason = "a queue ended before its work".to_owned();
        let device = self.0.settings.name.to_string();
        self.0.pass(Err(DeviceError::Lost { device, reason }));
    }
}

/// Waits for an event of any device.
pub(super) fn wait_for_foreign(event: &dyn Event, settings: &Settings) -> Result<(), DeviceError> {
    let begun = Instant::now();
    while !event.is_done() {
        if begun.elapsed() > settings.patience {
            return Err(out_of_patience(&settings.name, settings.patience));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    event.wait()
}

fn out_of_patience(device: &str, patience: Duration) -> DeviceError {
    DeviceError::Lost { device: device.to_owned(), reason: format!("no event came within {patience:?}") }
}
