//! What rings and mailboxes synchronize with. Their model test has the same names for loom's types.

use std::time::Duration;

pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
pub(super) use tokio::sync::Notify;

/// Sleeps while `idle` holds, up to a time.
pub(super) fn wait_while<T>(
    bell: &Condvar,
    guard: MutexGuard<'_, T>,
    most: Duration,
    idle: impl FnMut(&mut T) -> bool,
) {
    drop(bell.wait_timeout_while(guard, most, idle).unwrap_or_else(PoisonError::into_inner));
}
