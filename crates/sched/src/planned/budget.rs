//! Schedules that keep within the budgets of devices.

use std::collections::{BTreeMap, HashMap, HashSet};

use orlop_alloc::ArenaId;
use orlop_backend::Steps;
use orlop_graph::TensorId;

use crate::planned::memory::{Domains, PlannedMemory};
use crate::schedule::split::OffloadedWeights;
use crate::{DeviceId, Error, Machine, Schedule};

/// Most bytes that each device may use: for its arena, and for resident copies of weights.
pub(crate) struct Budgets<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) domains: &'a Domains,
    pub(crate) budgets: &'a HashMap<DeviceId, u64>,
}

/// A schedule and what it needs.
pub(crate) struct Attempt {
    pub(crate) schedule: Schedule,
    pub(crate) steps: Vec<Steps>,
    pub(crate) memory: PlannedMemory,
}

impl Budgets<'_> {
    /// The schedule whose copies of weights are resident as far as budgets allow, the largest first; the rest is offloaded,
    /// and so are the weights in `always`.
    pub(crate) fn fit(
        &self,
        attempt: impl Fn(&OffloadedWeights) -> Result<Attempt, Error>,
        always: &HashSet<TensorId>,
    ) -> Result<Attempt, Error> {
        let mut all = attempt(&OffloadedWeights::default())?;
        let offloaded = all
            .schedule
            .transfers
            .iter()
            .filter(|transfer| transfer.resident && always.contains(&transfer.root));
        let offloaded: HashSet<_> = offloaded.map(|transfer| (transfer.root, transfer.to)).collect();
        if !offloaded.is_empty() {
            all = attempt(&OffloadedWeights { weights: offloaded.clone(), early: true })?;
        }
        let Err(over) = self.check(&all.schedule, &all.memory) else { return Ok(all) };
        let narrow = |device: &DeviceId| self.over(&all.schedule, &all.memory, *device).is_some();
        let narrow: Vec<DeviceId> = self.machine.indices().filter(narrow).collect();
        let mut weights: BTreeMap<(TensorId, DeviceId), u64> = BTreeMap::new();
        for transfer in all
            .schedule
            .transfers
            .iter()
            .filter(|transfer| transfer.resident && narrow.contains(&transfer.to))
        {
            *weights.entry((transfer.root, transfer.to)).or_default() +=
                self.aligned(transfer.to, transfer.room);
        }
        if weights.is_empty() && offloaded.is_empty() {
            return Err(over);
        }
        // What is transferred while another split computes takes room for two.
        let all = weights.keys().copied().chain(offloaded);
        let mut offloaded = OffloadedWeights { weights: all.collect(), early: false };
        let least = attempt(&offloaded)?;
        self.check(&least.schedule, &least.memory)?;
        let mut used: Vec<u64> = self
            .machine
            .indices()
            .map(|device| self.needed(&least.schedule, &least.memory, device))
            .collect();
        let mut largest_first: Vec<_> = weights.into_iter().collect();
        largest_first.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        for ((root, device), bytes) in largest_first {
            let more = used[device.index()].saturating_add(bytes);
            if self.budgets.get(&device).is_none_or(|budget| more <= *budget) {
                used[device.index()] = more;
                offloaded.weights.remove(&(root, device));
            }
        }
        // Fewer values in an arena seldom need more of it, but no planner promises that.
        let most = attempt(&offloaded)?;
        match self.check(&most.schedule, &most.memory) {
            Ok(()) => Ok(most),
            Err(_) => Ok(least),
        }
    }

    fn check(&self, schedule: &Schedule, memory: &PlannedMemory) -> Result<(), Error> {
        let over =
            self.machine.indices().find_map(|device| Some((device, self.over(schedule, memory, device)?)));
        let Some((device, (needed, budget))) = over else { return Ok(()) };
        let plan = &memory.plans[self.domains.of(device)];
        let (step, peak) = plan.peak(ArenaId::new(0));
        let largest = peak.iter().take(5).map(|storage| format!("{} {}", storage.name, storage.bytes));
        let resident = resident_bytes(schedule, device);
        let resident = (resident > 0).then(|| format!("resident weights {resident}"));
        Err(Error::OverBudget {
            device: self.machine.name(device).to_owned(),
            needed,
            budget,
            step,
            largest: largest.chain(resident).collect(),
        })
    }

    /// What a device needs and may have, if it needs more.
    fn over(&self, schedule: &Schedule, memory: &PlannedMemory, device: DeviceId) -> Option<(u64, u64)> {
        let budget = *self.budgets.get(&device)?;
        let needed = self.needed(schedule, memory, device);
        (needed > budget).then_some((needed, budget))
    }

    fn needed(&self, schedule: &Schedule, memory: &PlannedMemory, device: DeviceId) -> u64 {
        let arena = memory.plans[self.domains.of(device)].total();
        let here = schedule.transfers.iter().filter(|transfer| transfer.resident && transfer.to == device);
        here.fold(arena, |sum, transfer| sum.saturating_add(self.aligned(device, transfer.room)))
    }

    /// Bytes as they will be allocated: each copy begins at an aligned offset.
    fn aligned(&self, device: DeviceId, bytes: u64) -> u64 {
        let alignment = self.machine.arena(device).alignment().max(1);
        bytes.div_ceil(alignment).saturating_mul(alignment)
    }
}

/// Bytes of the resident copies of weights on a device.
pub(crate) fn resident_bytes(schedule: &Schedule, device: DeviceId) -> u64 {
    let here = schedule.transfers.iter().filter(|transfer| transfer.resident && transfer.to == device);
    here.fold(0, |sum: u64, transfer| sum.saturating_add(transfer.room))
}
