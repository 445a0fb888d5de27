//! Memory plans that outlive the process that made them.

use std::sync::Arc;

use orlop_plan::{Signature, Signer};

use super::memory_plan::ArenaOffset;
use crate::{ArenaPlan, Decision, Flaw, MemoryPlan, PlannedStorage, Unread, Usage};

/// A memory plan without its usage, bound to the usage's signature.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SavedMemoryPlan {
    /// Of the usage that was planned.
    pub signature: Signature,
    /// See [`MemoryPlan::arenas`].
    pub arenas: Vec<ArenaPlan>,
    /// See [`MemoryPlan::storages`].
    pub storages: Vec<PlannedStorage>,
    /// See [`MemoryPlan::decisions`].
    pub decisions: Vec<Decision>,
    /// Where each value of the usage lies.
    pub places: Vec<Option<ArenaOffset>>,
}

/// Why a saved memory plan is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SavedMemoryPlanError {
    /// It was made for another usage: another graph, other sizes, or other devices.
    #[error("the plan was made for a graph with signature {planned}, this one has {given}")]
    Other {
        /// The signature in the plan.
        planned: Signature,
        /// That of the usage at hand.
        given: Signature,
    },
    /// The signature is right, but lists are too short or too long for the usage.
    #[error("the plan is damaged: it speaks of {found} {what}, the graph has {expected}")]
    Incomplete {
        /// What is counted.
        what: &'static str,
        /// How many the plan has.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// The signature is right but the plan is not.
    #[error("the plan is damaged")]
    Damaged(#[source] Flaw),
}

impl SavedMemoryPlan {
    /// A plan to be kept.
    pub fn new(plan: &MemoryPlan) -> SavedMemoryPlan {
        SavedMemoryPlan {
            signature: plan.usage.signature(),
            arenas: plan.arenas.clone(),
            storages: plan.storages.clone(),
            decisions: plan.decisions.clone(),
            places: plan.places().to_vec(),
        }
    }

    /// The plan, if it was made for `usage`.
    ///
    /// # Errors
    /// [`SavedMemoryPlanError::Other`] for another usage; the other variants if [`MemoryPlan::check`] objects.
    pub fn open(self, usage: &Arc<Usage>) -> Result<MemoryPlan, SavedMemoryPlanError> {
        let given = usage.signature();
        if self.signature != given {
            return Err(SavedMemoryPlanError::Other { planned: self.signature, given });
        }
        let counts = [
            ("arenas", self.arenas.len(), usage.arenas.len()),
            ("values", self.places.len(), usage.values().len()),
        ];
        for (what, found, expected) in counts {
            if found != expected {
                return Err(SavedMemoryPlanError::Incomplete { what, found, expected });
            }
        }
        let plan = MemoryPlan::from_parts(usage, self.arenas, self.storages, self.decisions, self.places);
        plan.check().map_err(SavedMemoryPlanError::Damaged)?;
        Ok(plan)
    }
}

impl Usage {
    /// A signature of all that a memory plan depends on; names do not matter.
    pub fn signature(&self) -> Signature {
        let mut signer = Signer::default();
        signer = signer.number(match self.unread {
            Unread::LivesOn => 1,
            _ => 0,
        });
        let arenas = self.arenas.iter().flat_map(|arena| [arena.alignment, arena.max_chunk]);
        signer = signer.numbers(arenas.collect::<Vec<_>>().into_iter());
        let leaves =
            self.leaves.iter().flat_map(|(value, arena)| [value.index() as u64, arena.index() as u64]);
        signer = signer.numbers(leaves.collect::<Vec<_>>().into_iter());
        signer = signer.number(self.values().len() as u64);
        for value in self.values() {
            let flags = &value.flags;
            let flags = [flags.input, flags.output, flags.external, flags.marker];
            let flags = flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag));
            signer = signer.number(value.bytes).number(value.root.index() as u64).number(value.offset);
            signer = signer.number(u64::from(value.layout)).number(flags);
        }
        signer = signer.number(self.step_count() as u64);
        for step in self.steps() {
            signer = signer.number(step.arena.index() as u64).number(u64::from(step.group));
            signer = signer.numbers(step.reads.iter().map(|value| value.index() as u64));
            signer = signer.numbers(step.writes.iter().map(|value| value.index() as u64));
            let pair = |pair: &crate::OverwritePair| u64::from(pair.write) << 32 | u64::from(pair.read);
            signer = signer.numbers(step.overwrites.iter().map(pair));
        }
        signer.finish()
    }
}
