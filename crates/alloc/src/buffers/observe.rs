//! What an allocator does, told to an observer.

use crate::{ArenaOffset, Grown, MemoryPlan, Misfit, ValueId, Verdict};

/// Sees what an allocator does. Nothing is printed unless an observer does.
pub trait Observer: Send {
    /// Called for each event, in order.
    fn observe(&mut self, event: &AllocEvent<'_>);
}

impl<F: FnMut(&AllocEvent<'_>) + Send> Observer for F {
    fn observe(&mut self, event: &AllocEvent<'_>) {
        self(event);
    }
}

/// Something an allocator did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AllocEvent<'a> {
    /// A plan was made.
    Planned {
        /// Why the one before did not serve; `None` for the first, or when one was asked for.
        reason: Option<&'a Misfit>,
        /// The plan.
        plan: &'a MemoryPlan,
    },
    /// Memory was handed out.
    Allocated {
        /// The step before which.
        step: usize,
        /// To whom.
        name: &'a str,
        /// Where.
        place: ArenaOffset,
        /// How much, rounded up.
        bytes: u64,
    },
    /// A result took, or did not take, an operand's place.
    InPlace {
        /// The step.
        step: usize,
        /// The result.
        name: &'a str,
        /// The operand.
        operand: &'a str,
        /// What came of it.
        verdict: Verdict,
    },
    /// Memory was given back; outputs never are.
    Released {
        /// The step after which.
        step: usize,
        /// Who had it.
        name: &'a str,
        /// Where.
        place: ArenaOffset,
        /// How much.
        bytes: u64,
    },
    /// A buffer was replaced by a larger one.
    Grew(&'a Grown),
}

/// Tells an observer what a plan does with memory, step by step.
pub(crate) fn narrate(plan: &MemoryPlan, observer: &mut dyn Observer) {
    let usage = &*plan.usage;
    let name = |id: ValueId| usage.name(id);
    let mut begins: Vec<&crate::PlannedStorage> = plan.storages.iter().collect();
    let mut ends = begins.clone();
    begins.sort_by_key(|storage| storage.live.start);
    ends.sort_by_key(|storage| storage.live.end);
    let (mut begins, mut ends) = (begins.into_iter().peekable(), ends.into_iter().peekable());
    let mut decisions = plan.decisions.iter().peekable();
    for step in 0..usage.step_count().max(1) {
        while let Some(storage) = begins.next_if(|storage| storage.live.start == step) {
            let (place, bytes) = (storage.place, storage.bytes);
            observer.observe(&AllocEvent::Allocated { step, name: name(storage.values[0]), place, bytes });
        }
        while let Some(decision) = decisions.next_if(|decision| decision.step == step) {
            observer.observe(&AllocEvent::InPlace {
                step,
                name: name(decision.value),
                operand: name(decision.operand),
                verdict: decision.verdict,
            });
        }
        while let Some(storage) = ends.next_if(|storage| storage.live.end == step + 1) {
            let last = storage.values.last().copied().unwrap_or(storage.values[0]);
            if usage.value(last).flags.output {
                continue;
            }
            let (place, bytes) = (storage.place, storage.bytes);
            observer.observe(&AllocEvent::Released { step, name: name(last), place, bytes });
        }
    }
}
