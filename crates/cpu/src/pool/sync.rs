//! What `phase` synchronizes with. Its model test has the same names for loom's types.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(super) use std::sync::{Condvar, Mutex};

/// The orderings that results depend on, by what they are for.
pub(super) mod order {
    use std::sync::atomic::Ordering;

    /// Opening a phase: a helper that claims an item sees the job, and all results of the phases before.
    pub(crate) const OPEN: Ordering = Ordering::Release;
    pub(crate) const CLAIM: Ordering = Ordering::Acquire;
    /// Finishing an item: the caller sees its results.
    pub(crate) const FINISH: Ordering = Ordering::Release;
    pub(crate) const CLOSE: Ordering = Ordering::Acquire;
}

/// A place that threads take turns to use.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
