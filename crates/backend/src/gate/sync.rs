//! What `state` synchronizes with. Its model test has the same names for loom's types.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};

/// The orderings that claims depend on, by what they are for.
pub(super) mod order {
    use std::sync::atomic::Ordering;

    /// Entering: what those before wrote is seen, and what they read was read.
    pub(crate) const ENTER: Ordering = Ordering::Acquire;
    /// A writer leaves: those after it see what it wrote.
    pub(crate) const LEAVE_WRITER: Ordering = Ordering::Release;
    /// A reader leaves: a writer after it does not change what it reads.
    pub(crate) const LEAVE_READER: Ordering = Ordering::Release;
}
