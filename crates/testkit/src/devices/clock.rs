//! A virtual clock: the times that queues would take, computed from estimates.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A virtual clock, shared by devices. Clones are one clock.
///
/// Every queue has its own time. A program adds the estimate of its steps, a copy the latency of the device's host link
/// and its bytes over that link. An event carries its queue's time; another queue that waits for it continues no earlier,
/// and so does the host. Work begins no earlier than the host submitted it. Reading and writing tensors from the host
/// costs nothing.
///
/// The times depend on the estimates alone: real speed and asynchrony have no influence.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    times: Arc<Mutex<Times>>,
    /// The instant that stands for time 0.
    zero: Instant,
}

impl Default for VirtualClock {
    fn default() -> VirtualClock {
        VirtualClock { times: Arc::default(), zero: Instant::now() }
    }
}

#[derive(Debug, Default)]
struct Times {
    host: f64,
    queues: Vec<(Arc<str>, f64)>,
}

impl VirtualClock {
    /// A clock at 0.
    pub fn new() -> VirtualClock {
        VirtualClock::default()
    }

    /// When the last queue of all devices is done.
    pub fn makespan(&self) -> f64 {
        self.times().queues.iter().fold(0.0, |latest, (_, time)| time.max(latest))
    }

    /// When the last queue of the device of this name is done; 0 if it has none.
    pub fn device_seconds(&self, device: &str) -> f64 {
        let times = self.times();
        let own = times.queues.iter().filter(|(name, _)| **name == *device);
        own.fold(0.0, |latest, (_, time)| time.max(latest))
    }

    /// The time of the latest queue that the host waited for.
    pub fn host_seconds(&self) -> f64 {
        self.times().host
    }

    /// Sets all times back to 0. Earlier events keep their times, so nothing may be running.
    pub fn reset(&self) {
        let mut times = self.times();
        times.host = 0.0;
        times.queues.iter_mut().for_each(|(_, time)| *time = 0.0);
    }

    /// A time of this clock as an instant.
    pub(super) fn instant(&self, seconds: f64) -> Instant {
        self.zero + Duration::from_secs_f64(seconds.max(0.0))
    }

    pub(super) fn host_waited_until(&self, time: f64) {
        let mut times = self.times();
        times.host = times.host.max(time);
    }

    /// The time of a new queue.
    pub(super) fn queue(&self, device: &Arc<str>) -> QueueTime {
        let mut times = self.times();
        times.queues.push((Arc::clone(device), 0.0));
        QueueTime { clock: self.clone(), index: times.queues.len() - 1 }
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One queue's time.
#[derive(Debug)]
pub(super) struct QueueTime {
    clock: VirtualClock,
    index: usize,
}

impl QueueTime {
    pub(super) fn now(&self) -> f64 {
        self.clock.times().queues[self.index].1
    }

    /// Nothing happens on the queue before `time`.
    pub(super) fn wait_until(&mut self, time: f64) {
        let own = &mut self.clock.times().queues[self.index].1;
        *own = own.max(time);
    }

    /// Work that was given at `given` and takes `seconds`.
    pub(super) fn work(&mut self, given: f64, seconds: f64) {
        let own = &mut self.clock.times().queues[self.index].1;
        *own = own.max(given) + seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_begins_when_it_is_given_and_its_queue_is_free() {
        let clock = VirtualClock::new();
        let (a, b): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("b"));
        let (mut first, mut second, mut other) = (clock.queue(&a), clock.queue(&a), clock.queue(&b));
        first.work(0.0, 2.0);
        first.work(1.0, 2.0);
        assert_eq!(first.now(), 4.0);
        second.work(5.0, 1.0);
        assert_eq!(clock.device_seconds("a"), 6.0);
        other.wait_until(first.now());
        other.wait_until(1.0);
        other.work(0.0, 0.5);
        assert_eq!(clock.device_seconds("b"), 4.5);
        assert_eq!((clock.makespan(), clock.device_seconds("c")), (6.0, 0.0));
        clock.reset();
        assert_eq!((clock.makespan(), clock.host_seconds()), (0.0, 0.0));
    }
}
