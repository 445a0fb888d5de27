//! Whether a plan that was recorded for one usage serves another.

use crate::{MemoryPlan, Usage, ValueId};

impl MemoryPlan {
    /// Whether this plan serves another usage: edges, roots, flags and arenas agree by position, nothing has
    /// grown, and every result that takes an operand's place still may.
    ///
    /// # Errors
    /// The first difference.
    pub fn fits(&self, usage: &Usage) -> Result<(), Misfit> {
        let planned = &*self.usage;
        if std::ptr::eq(planned, usage) {
            return Ok(());
        }
        if planned.arenas != usage.arenas {
            return Err(Misfit::Arenas);
        }
        if planned.values().len() != usage.values().len() {
            return Err(Misfit::Values { planned: planned.values().len(), given: usage.values().len() });
        }
        if planned.step_count() != usage.step_count() {
            return Err(Misfit::Steps { planned: planned.step_count(), given: usage.step_count() });
        }
        if planned.leaves != usage.leaves || planned.unread != usage.unread {
            return Err(Misfit::Leaves);
        }
        for index in 0..usage.step_count() {
            let (old, new) = (planned.step(index), usage.step(index));
            if old.arena != new.arena
                || old.group != new.group
                || old.reads != new.reads
                || old.writes != new.writes
            {
                return Err(Misfit::Step { step: index });
            }
        }
        for (index, (old, new)) in planned.values().iter().zip(usage.values()).enumerate() {
            let id = ValueId::new(index);
            let name = || usage.name(id).to_owned();
            if old.root != new.root || old.flags != new.flags {
                return Err(Misfit::Value { value: name() });
            }
            if new.root != id || new.flags.external {
                continue;
            }
            let grown = match self.place(id) {
                Some(place) => usage.rounded_bytes(id, place.arena) > planned.rounded_bytes(id, place.arena),
                None => new.bytes > old.bytes,
            };
            if grown {
                return Err(Misfit::Grown { value: name(), planned: old.bytes, given: new.bytes });
            }
        }
        for decision in self.decisions.iter().filter(|decision| decision.verdict.is_taken()) {
            let (new, operand) = (usage.value(decision.value), usage.value(decision.operand));
            let step = usage.step(decision.step);
            // Whatever else the step reads of that memory must lie exactly under the result, too.
            let legal = |(slot, read): (usize, &ValueId)| {
                let read = usage.value(*read);
                let offered = step.overwrites.iter().any(|pair| {
                    step.writes[pair.write as usize] == decision.value && pair.read as usize == slot
                });
                read.root != operand.root || (offered && read.layout == new.layout && read.offset == 0)
            };
            if !step.reads.iter().enumerate().all(legal) {
                return Err(Misfit::InPlace { value: usage.name(decision.value).to_owned() });
            }
        }
        Ok(())
    }
}

/// Why a recorded plan does not serve a usage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// Number, alignment or limits of arenas.
    #[error("the arenas differ")]
    Arenas,
    /// Number of values.
    #[error("planned for {planned} values, there are {given}")]
    Values {
        /// In the plan.
        planned: usize,
        /// Now.
        given: usize,
    },
    /// Number of steps.
    #[error("planned for {planned} steps, there are {given}")]
    Steps {
        /// In the plan.
        planned: usize,
        /// Now.
        given: usize,
    },
    /// Which leaves there are, and where.
    #[error("the leaves differ")]
    Leaves,
    /// What a step reads or writes, or where.
    #[error("step {step} reads or writes something else, or elsewhere")]
    Step {
        /// The step.
        step: usize,
    },
    /// A value's root or flags.
    #[error("`{value}` has another root or other flags")]
    Value {
        /// Its name.
        value: String,
    },
    /// A value's size.
    #[error("`{value}` has grown from {planned} to {given} bytes")]
    Grown {
        /// Its name.
        value: String,
        /// In the plan.
        planned: u64,
        /// Now.
        given: u64,
    },
    /// A result may no longer take its operand's place.
    #[error("`{value}` can no longer take its operand's place")]
    InPlace {
        /// Its name.
        value: String,
    },
}
