use orlop_alloc::{ArenaInfo, PlanOptions, SavedMemoryPlan, StepSequence};
use orlop_backend::Steps;
use orlop_graph::{Graph, TensorId};

use crate::memory::{MemoryPlanner, PlannedMemory};
use crate::planned::readers;
use crate::{Error, Schedule};

/// What is spent on an order, as a part of what is spent on places: sessions plan while somebody waits.
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
        let mut moved = false;
        let mut ordered = Vec::with_capacity(self.steps.len());
        for (split, steps) in self.steps.iter().enumerate() {
            let device = self.machine.device(self.schedule.splits[split].device);
            let found = match device.steps_may_move() {
                true => self.part(split, &needed, |part| part.reordered(effort))?,
                false => None,
            };
            moved |= found.is_some();
            ordered.push(found.unwrap_or_else(|| steps.clone()));
        }
        if !moved {
            return Ok(None);
        }
        let memory = MemoryPlanner { steps: &ordered, ..*self }.plan(options, known)?;
        let totals = || memory.plans.iter().zip(&given.plans).map(|(new, old)| (new.total(), old.total()));
        let gains = totals().all(|(new, old)| new <= old) && totals().any(|(new, old)| new < old);
        Ok(gains.then_some((ordered, memory)))
    }

    /// Looks at the steps of a split by themselves.
    fn part<T>(
        &self,
        split: usize,
        needed: &Needed,
        look: impl FnOnce(&StepSequence<'_>) -> Result<T, orlop_alloc::Error>,
    ) -> Result<T, Error> {
        let device = self.schedule.splits[split].device;
        let domain = self.domains.of(device);
        let memory = &*self.domains.types[domain];
        let bytes = |root: TensorId| {
            let here = self.domain_of(root) == Some(domain);
            here.then(|| memory.alloc_bytes(&self.graph.tensor(root).desc))
        };
        let observed = self.schedule.splits[split].observed.map(|id| self.graph.tensor(id).storage.root);
        let stays = |root: TensorId| needed.after(root, split) || observed == Some(root);
        let arena = ArenaInfo::of(memory);
        let part = StepSequence {
            graph: self.graph,
            steps: &self.steps[split],
            arena,
            bytes: &bytes,
            stays: &stays,
        };
        look(&part).map_err(|source| self.failed(domain, source))
    }
}

/// For how long each root is needed.
struct Needed {
    readers: Vec<Vec<usize>>,
    result: Vec<bool>,
}

impl Needed {
    fn of(graph: &Graph, schedule: &Schedule) -> Needed {
        let mut result = vec![false; graph.tensors().len()];
        graph.results().iter().for_each(|id| result[graph.tensor(*id).storage.root.index()] = true);
        Needed { readers: readers(graph, schedule), result }
    }

    /// Whether somebody needs a root after a split.
    fn after(&self, root: TensorId, split: usize) -> bool {
        let last = self.readers[root.index()].last();
        self.result[root.index()] || last.is_some_and(|last| *last > split)
    }
}
