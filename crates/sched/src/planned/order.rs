//! A better order of the steps of each split.

use orlop_alloc::{ArenaInfo, PlanOptions, SavedMemoryPlan, StepSequence};
use orlop_backend::Steps;
use orlop_graph::{Graph, TensorId};

use crate::planned::memory::{MemoryPlanner, PlannedMemory};
use crate::planned::readers;
use crate::{Error, Schedule, SplitId};

/// What is spent on an order, as a part of what is spent on places: sessions plan while the caller waits.
const SHARE: u64 = 16;

impl MemoryPlanner<'_> {
    /// Steps that change places within their splits, and the memory they need then, if no arena needs more than
    /// `given` has and one needs less.
    pub(crate) fn reordered(
        &self,
        given: &PlannedMemory,
        options: &PlanOptions,
        known: &[SavedMemoryPlan],
    ) -> Result<Option<(Vec<Steps>, PlannedMemory)>, Error> {
        let effort = options.search.effort / SHARE;
        let needed = Needed::of(self.graph, self.schedule);
        let better = self.schedule.ids().map(|split| {
            match self.machine.device(self.schedule[split].device).steps_may_move() {
                true => self.reordered_split(split, &needed, effort),
                false => Ok(None),
            }
        });
        let better: Vec<Option<Steps>> = better.collect::<Result<_, _>>()?;
        if better.iter().all(Option::is_none) {
            return Ok(None);
        }
        let chosen = |(better, given): (Option<Steps>, &Steps)| better.unwrap_or_else(|| given.clone());
        let ordered: Vec<Steps> = better.into_iter().zip(self.steps).map(chosen).collect();
        let memory = MemoryPlanner { steps: &ordered, ..*self }.plan(options, known)?;
        let totals = || memory.plans.iter().zip(&given.plans).map(|(new, old)| (new.total(), old.total()));
        let gains = totals().all(|(new, old)| new <= old) && totals().any(|(new, old)| new < old);
        Ok(gains.then_some((ordered, memory)))
    }

    /// The steps of a split by themselves, in a better order; `None` if there is none.
    fn reordered_split(&self, id: SplitId, needed: &Needed, effort: u64) -> Result<Option<Steps>, Error> {
        let split = &self.schedule[id];
        let domain = self.domains.of(split.device);
        let memory = &*self.domains.types[domain];
        let bytes = |root: TensorId| {
            let here = self.domain_of(root) == Some(domain);
            here.then(|| memory.alloc_bytes(&self.graph.tensor(root).desc))
        };
        let observed = split.observed.map(|id| self.graph.tensor(id).storage.root);
        let stays = |root: TensorId| needed.after(root, id) || observed == Some(root);
        let sequence = StepSequence {
            graph: self.graph,
            steps: &self.steps[id.index()],
            arena: ArenaInfo::of(memory),
            bytes: &bytes,
            stays: &stays,
        };
        sequence.reordered(effort).map_err(|source| self.failed(domain, source))
    }
}

/// For how long each root is needed.
struct Needed {
    readers: Vec<Vec<SplitId>>,
    result: Vec<bool>,
}

impl Needed {
    fn of(graph: &Graph, schedule: &Schedule) -> Needed {
        let mut result = vec![false; graph.tensors().len()];
        graph.results().iter().for_each(|id| result[graph.tensor(*id).storage.root.index()] = true);
        Needed { readers: readers(graph, schedule), result }
    }

    /// Whether a root is needed after a split.
    fn after(&self, root: TensorId, split: SplitId) -> bool {
        let last = self.readers[root.index()].last();
        self.result[root.index()] || last.is_some_and(|last| *last > split)
    }
}
