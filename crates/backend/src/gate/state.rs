//! Who is inside a gate, without a lock.
//!
//! `tests/gate_model.rs` runs this file under [loom](https://docs.rs/loom), with each ordering as it is and weakened.

use orlop_graph::AccessKind;

use super::Holder;
use super::sync::{AtomicU64, Ordering, order};

const WRITER: u64 = u64::MAX;

/// Any number of readers, or one writer; and how often a writer has left.
#[derive(Debug, Default)]
pub(crate) struct GateState {
    inside: AtomicU64,
    generation: AtomicU64,
}

impl GateState {
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Enters, unless those inside exclude it.
    pub(crate) fn enter(&self, kind: AccessKind) -> Result<(), Holder> {
        let step = |inside: u64| match kind {
            AccessKind::Write => (inside == 0).then_some(WRITER),
            AccessKind::Read => (inside < WRITER - 1).then(|| inside + 1),
        };
        match self.inside.fetch_update(order::ENTER, Ordering::Relaxed, step) {
            Ok(_) => Ok(()),
            Err(WRITER) => Err(Holder::Writer),
            Err(readers) => Err(Holder::Readers(readers)),
        }
    }

    /// Leaves; `written` says whether a writer may have written something.
    pub(crate) fn leave(&self, kind: AccessKind, written: bool) {
        match kind {
            AccessKind::Write => {
                self.generation.fetch_add(u64::from(written), Ordering::AcqRel);
                self.inside.store(0, order::LEAVE_WRITER);
            }
            AccessKind::Read => {
                self.inside.fetch_sub(1, order::LEAVE_READER);
            }
        }
    }
}
