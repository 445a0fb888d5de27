//! A memory plan as a value: where everything lies, how good that is, and what is in use when.

use std::ops::Range;
use std::sync::Arc;

use orlop_plan::{SolveOptions, Strategy};

use crate::{ArenaId, Decision, Sharing, Usage, ValueId};

/// Where every value of a usage lies, and how good that is. A plain value: it prints, compares, and can be
/// kept.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryPlan {
    /// What was planned for.
    pub usage: Arc<Usage>,
    /// The plan of each arena of the usage.
    pub arenas: Vec<ArenaPlan>,
    /// Memory of one piece each: values that take it over from each other share one.
    pub storages: Vec<PlannedStorage>,
    /// Which results took the place of operands, and which did not, with the reason.
    pub decisions: Vec<Decision>,
    places: Vec<Option<ArenaOffset>>,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArenaOffset {
    /// The arena.
    pub arena: ArenaId,
    /// Which of the arena's chunks.
    pub chunk: u32,
    /// Bytes from the chunk's beginning.
    pub offset: u64,
}

/// How an arena was planned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArenaPlan {
    /// Bytes of each chunk.
    pub chunks: Vec<u64>,
    /// Chunks that exceed the largest size, for one value that does.
    pub oversize: Vec<u32>,
    /// The sum of the chunks.
    pub peak: u64,
    /// Most bytes in use at one step; no plan for these storages is smaller.
    pub bound: u64,
    /// No smaller plan exists for these storages.
    pub optimal: bool,
    /// What found the plan.
    pub strategy: Strategy,
    /// How results shared memory with operands.
    pub sharing: Sharing,
    /// Counted work.
    pub work: u64,
}

/// A piece of memory and its users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PlannedStorage {
    /// Where it lies.
    pub place: ArenaOffset,
    /// Its size, rounded up.
    pub bytes: u64,
    /// Steps at which it is in use.
    pub live: Range<usize>,
    /// Its values, one after the other.
    pub values: Vec<ValueId>,
}

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Strategy and effort. Default: the best of all, at default effort.
    pub search: SolveOptions,
    /// Default [`Sharing::Full`]: the planner also tries what is below it, and keeps the smallest.
    pub sharing: Sharing,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions { search: SolveOptions::default(), sharing: Sharing::Full }
    }
}

impl PlanOptions {
    /// Planning as ggml does it: best fit in the order of execution, first operand in place.
    pub const GGML: PlanOptions = PlanOptions {
        search: SolveOptions { effort: 0, ..SolveOptions::with(Strategy::Ggml) },
        sharing: Sharing::Direct,
    };
}

/// A storage in use at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakStorage {
    /// The name of the value that holds it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Where it lies.
    pub place: ArenaOffset,
    /// Steps at which it is in use.
    pub live: Range<usize>,
}

impl MemoryPlan {
    /// Where a value lies; `None` if it lies in the caller's memory, or has none.
    pub fn place(&self, id: ValueId) -> Option<ArenaOffset> {
        self.places.get(id.index()).copied().flatten()
    }

    pub(crate) fn from_parts(
        usage: &Arc<Usage>,
        arenas: Vec<ArenaPlan>,
        storages: Vec<PlannedStorage>,
        decisions: Vec<Decision>,
        places: Vec<Option<ArenaOffset>>,
    ) -> MemoryPlan {
        MemoryPlan { usage: Arc::clone(usage), arenas, storages, decisions, places }
    }

    pub(crate) fn places(&self) -> &[Option<ArenaOffset>] {
        &self.places
    }

    /// Bytes of all arenas; `u64::MAX` if that is more than 64 bits hold.
    pub fn total(&self) -> u64 {
        self.arenas.iter().fold(0, |sum, arena| sum.saturating_add(arena.peak))
    }

    /// The step at which most of an arena is in use, and what is in use there, largest first.
    pub fn peak(&self, arena: ArenaId) -> (usize, Vec<PeakStorage>) {
        let mut change = vec![0i128; self.usage.step_count().max(1) + 1];
        let mine = |storage: &&PlannedStorage| storage.place.arena == arena;
        for storage in self.storages.iter().filter(mine) {
            change[storage.live.start] += i128::from(storage.bytes);
            change[storage.live.end] -= i128::from(storage.bytes);
        }
        let (mut now, mut most, mut step) = (0, 0, 0);
        for (index, change) in change.iter().enumerate() {
            now += change;
            if now > most {
                (most, step) = (now, index);
            }
        }
        let mut peak: Vec<PeakStorage> = self
            .storages
            .iter()
            .filter(mine)
            .filter(|storage| storage.live.contains(&step) && storage.bytes > 0)
            .map(|storage| PeakStorage {
                name: self.holder(storage, step),
                bytes: storage.bytes,
                place: storage.place,
                live: storage.live.clone(),
            })
            .collect();
        peak.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.place.cmp(&b.place)));
        (step, peak)
    }

    /// The value that holds a storage at a step: the last that took it over by then.
    fn holder(&self, storage: &PlannedStorage, step: usize) -> String {
        let taken = |value: &&ValueId| {
            self.decisions.iter().any(|d| d.value == **value && d.verdict.is_taken() && d.step <= step)
        };
        let value = storage.values.iter().skip(1).rev().find(taken).unwrap_or(&storage.values[0]);
        self.usage.name(*value).to_owned()
    }

    /// Checks the plan against its usage, by other means than it was made: lifetimes are recomputed from the
    /// steps alone, and no two values whose lifetimes meet may touch the same bytes unless one took the other's
    /// place.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), crate::Flaw> {
        super::check::check(self)
    }
}
