//! State that all objects of a test device share: counters, budget, injected faults, loss.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlop_backend::{Buffer, DeviceError, Gate, Memory};

use super::faults::{FaultKind, FaultPoint};

/// What a device has done, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Buffers that were allocated.
    pub allocations: u64,
    /// Those that are not freed yet.
    pub live_buffers: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most that `live_bytes` has been.
    pub peak_bytes: u64,
    /// Copies that queues came to, those that failed included.
    pub copies: u64,
    /// Bytes of the elements of those that did not fail.
    pub copied_bytes: u64,
    /// Programs that queues came to, those that failed included.
    pub submits: u64,
}

/// The state of a device, shared by all its objects.
#[derive(Debug)]
pub(super) struct Ledger {
    device: Arc<str>,
    budget: Option<u64>,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    counters: Counters,
    orders: Vec<(FaultPoint, u64, FaultKind)>,
    lost: bool,
    /// The inner device's buffers behind those of the device, by the address of their gate, which both have.
    behind: HashMap<usize, Arc<dyn Buffer>>,
}

fn key(gate: &Arc<Gate>) -> usize {
    Arc::as_ptr(gate).addr()
}

impl Ledger {
    pub(super) fn new(device: Arc<str>, budget: Option<u64>) -> Ledger {
        Ledger { device, budget, books: Mutex::default() }
    }

    pub(super) fn counters(&self) -> Counters {
        self.books().counters
    }

    pub(super) fn memory(&self) -> Option<Memory> {
        let used = self.books().counters.live_bytes;
        self.budget.map(|total| Memory { total, free: total.saturating_sub(used) })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.books().lost
    }

    pub(super) fn lose(&self) {
        self.books().lost = true;
    }

    /// # Errors
    /// [`DeviceError::Lost`].
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        if self.is_lost() { Err(self.lost("it was told to fail")) } else { Ok(()) }
    }

    pub(super) fn lost(&self, reason: &str) -> DeviceError {
        DeviceError::Lost { device: self.device.to_string(), reason: reason.to_owned() }
    }

    pub(super) fn arm(&self, work: FaultPoint, nth: u64, failure: FaultKind) {
        self.books().orders.push((work, nth, failure));
    }

    pub(super) fn armed(&self) -> usize {
        self.books().orders.len()
    }

    pub(super) fn disarm(&self) {
        self.books().orders.clear();
    }

    /// Takes bytes out of the budget. They are given back by [`Ledger::release`].
    pub(super) fn reserve(&self, bytes: u64) -> Result<(), DeviceError> {
        self.begin(FaultPoint::Allocation, bytes)?;
        let mut books = self.books();
        let live = books.counters.live_bytes.saturating_add(bytes);
        if self.budget.is_some_and(|budget| live > budget) {
            return Err(self.out_of_memory(bytes));
        }
        let counters = &mut books.counters;
        counters.live_bytes = live;
        counters.peak_bytes = counters.peak_bytes.max(live);
        Ok(())
    }

    /// Gives back bytes whose allocation failed.
    pub(super) fn unreserve(&self, bytes: u64) {
        self.books().counters.live_bytes -= bytes;
    }

    /// Notes the buffer behind a new one whose bytes were reserved.
    pub(super) fn adopt(&self, behind: &Arc<dyn Buffer>) {
        let mut books = self.books();
        books.counters.allocations += 1;
        books.counters.live_buffers += 1;
        books.behind.insert(key(behind.gate()), Arc::clone(behind));
    }

    pub(super) fn release(&self, gate: &Arc<Gate>, bytes: u64) {
        let mut books = self.books();
        books.counters.live_buffers -= 1;
        books.counters.live_bytes -= bytes;
        // Not under the lock: what is behind may be another test device's.
        let behind = books.behind.remove(&key(gate));
        drop(books);
        drop(behind);
    }

    pub(super) fn behind(&self, buffer: &dyn Buffer) -> Option<Arc<dyn Buffer>> {
        self.books().behind.get(&key(buffer.gate())).cloned()
    }

    /// Counts a piece of work that begins, and fails it if a fault is pending for it.
    pub(super) fn begin(&self, work: FaultPoint, bytes: u64) -> Result<(), DeviceError> {
        self.check()?;
        let mut books = self.books();
        match work {
            FaultPoint::Allocation => {}
            FaultPoint::Copy => books.counters.copies += 1,
            FaultPoint::Submit => books.counters.submits += 1,
        }
        let mut due = None;
        books.orders.retain_mut(|(kind, left, failure)| {
            if *kind == work {
                *left -= 1;
                if *left == 0 {
                    due.get_or_insert_with(|| failure.clone());
                }
            }
            *left > 0
        });
        match due {
            None => Ok(()),
            Some(FaultKind::OutOfMemory) => Err(self.out_of_memory(bytes)),
            Some(FaultKind::Error(error)) => Err(error),
            Some(FaultKind::Lost) => {
                books.lost = true;
                drop(books);
                self.check()
            }
        }
    }

    pub(super) fn copied(&self, bytes: u64) {
        self.books().counters.copied_bytes += bytes;
    }

    fn out_of_memory(&self, bytes: u64) -> DeviceError {
        DeviceError::OutOfMemory { buffer_type: self.device.to_string(), bytes }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
