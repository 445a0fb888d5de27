use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::{
    ArenaId, ArenaInfo, Flags, Held, MemoryPlan, PlanOptions, SavedMemoryPlan, StepView, Unread, Usage,
    ValueId, ValueInfo, plan_memory,
};
use orlop_backend::{BufferType, StepValue, Steps, same_type};
use orlop_graph::{Graph, Leaf, TensorDesc, TensorId};

use crate::{DeviceId, Error, Machine, Placement, Schedule, ValueOrigin};

/// Devices by the memory that their results go to: those that share it are planned together.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    pub(crate) types: Vec<Arc<dyn BufferType>>,
    of_device: Vec<usize>,
}

impl Domains {
    pub(crate) fn new(machine: &Machine) -> Domains {
        let mut types: Vec<Arc<dyn BufferType>> = Vec::new();
        let mut of_device = Vec::new();
        for device in machine.indices() {
            let arena = machine.arena(device);
            let known = types.iter().position(|known| same_type(known, arena));
            of_device.push(known.unwrap_or_else(|| {
                types.push(Arc::clone(arena));
                types.len() - 1
            }));
        }
        Domains { types, of_device }
    }

    pub(crate) fn of(&self, device: DeviceId) -> usize {
        self.of_device[device.index()]
    }
}

/// The memory of one schedule: a plan for each domain, and what its values are.
#[derive(Clone, Debug)]
pub(crate) struct PlannedMemory {
    pub(crate) plans: Vec<Arc<MemoryPlan>>,
    values: Values,
}

/// A value of one domain.
type At = (usize, ValueId);

/// Which value of which domain a thing is.
#[derive(Clone, Debug, Default)]
struct Values {
    /// By tensor.
    tensors: Vec<Option<At>>,
    /// Of runs in flight beside the first: inputs and results, by root and number of the run's slot.
    slots: HashMap<(TensorId, usize), At>,
    /// By copy.
    copies: Vec<Option<At>>,
    /// The first of each split's temporaries; the others follow it.
    temporaries: Vec<At>,
}

impl Values {
    fn temporary(&self, split: usize, number: usize) -> At {
        let (domain, first) = self.temporaries[split];
        (domain, ValueId::new(first.index() + number))
    }
}

/// A place in one domain's plan.
pub(crate) type Spot = (usize, orlop_alloc::ArenaOffset);

impl PlannedMemory {
    /// Where a tensor lies in the runs that use a slot.
    pub(crate) fn tensor(&self, graph: &Graph, id: TensorId, slot: usize) -> Option<Spot> {
        let storage = graph.tensor(id).storage;
        match self.values.slots.get(&(storage.root, slot)) {
            Some(own) => {
                let (domain, place) = self.spot(*own)?;
                Some((domain, orlop_alloc::ArenaOffset { offset: place.offset + storage.offset, ..place }))
            }
            None => self.spot(self.values.tensors[id.index()]?),
        }
    }

    /// Whether a tensor lies in an arena.
    pub(crate) fn has(&self, id: TensorId) -> bool {
        self.values.tensors[id.index()].is_some()
    }

    pub(crate) fn copy(&self, copy: usize) -> Option<Spot> {
        self.spot(self.values.copies[copy]?)
    }

    pub(crate) fn temporary(&self, split: usize, number: usize) -> Option<Spot> {
        self.spot(self.values.temporary(split, number))
    }

    /// What each value of a domain's plan is.
    pub(crate) fn origins(&self, domain: usize, steps: &[Steps]) -> Vec<Option<ValueOrigin>> {
        let count = self.plans[domain].usage.values().len();
        let mut origins = vec![None; count];
        let mut note = |at: At, origin: ValueOrigin| {
            if at.0 == domain
                && let Some(entry) = origins.get_mut(at.1.index())
            {
                *entry = Some(origin);
            }
        };
        for (split, steps) in steps.iter().enumerate() {
            for number in 0..steps.temporaries.len() {
                note(self.values.temporary(split, number), ValueOrigin::Temporary { split });
            }
        }
        for (copy, at) in self.values.copies.iter().enumerate() {
            at.iter().for_each(|at| note(*at, ValueOrigin::Copy(copy)));
        }
        for (index, at) in self.values.tensors.iter().enumerate() {
            at.iter().for_each(|at| note(*at, ValueOrigin::Tensor { index }));
        }
        for ((root, _), at) in &self.values.slots {
            note(*at, ValueOrigin::Tensor { index: root.index() });
        }
        origins
    }

    fn spot(&self, (domain, id): At) -> Option<Spot> {
        Some((domain, self.plans[domain].place(id)?))
    }
}

/// Everything that planning a schedule's memory depends on.
pub(crate) struct MemoryPlanner<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) machine: &'a Machine,
    pub(crate) domains: &'a Domains,
    pub(crate) placement: &'a Placement,
    pub(crate) schedule: &'a Schedule,
    pub(crate) steps: &'a [Steps],
    /// How many runs may be in flight.
    pub(crate) depth: usize,
}

impl MemoryPlanner<'_> {
    /// Plans each arena, unless its plan is among those that are known.
    pub(crate) fn plan(
        &self,
        options: &PlanOptions,
        known: &[SavedMemoryPlan],
    ) -> Result<PlannedMemory, Error> {
        let (usages, values) = self.usages()?;
        let plan = |(domain, usage): (usize, Usage)| {
            let usage = Arc::new(usage);
            let signature = (!known.is_empty()).then(|| usage.signature());
            if let Some(saved) = known.iter().find(|saved| Some(saved.signature) == signature) {
                return Ok(Arc::new(saved.clone().open(&usage)?));
            }
            plan_memory(&usage, options).map(Arc::new).map_err(|source| self.failed(domain, source))
        };
        let plans = usages.into_iter().enumerate().map(plan).collect::<Result<_, _>>()?;
        Ok(PlannedMemory { plans, values })
    }

    /// One usage a domain, on the steps of its own devices.
    fn usages(&self) -> Result<(Vec<Usage>, Values), Error> {
        let mut usages: Vec<Usage> =
            self.domains.types.iter().map(|t| Usage::new(vec![ArenaInfo::of(&**t)], Unread::Dies)).collect();
        let mut values = Values::default();
        let holds = self.holds();
        self.push_values(&mut usages, &mut values, &holds);
        let mut held_until: HashMap<usize, Vec<TensorId>> = HashMap::new();
        for hold in &holds {
            if let Some(split) = hold.until {
                held_until.entry(split).or_default().push(hold.root);
            }
        }
        let arena = ArenaId::new(0);
        for (split, (part, steps)) in self.schedule.splits.iter().zip(self.steps).enumerate() {
            let domain = self.domains.of(part.device);
            let usage = &mut usages[domain];
            let held = held_until.get(&split).map_or(&[][..], Vec::as_slice);
            let mut keep: Vec<ValueId> =
                held.iter().filter_map(|root| values.tensors[root.index()].map(|(_, id)| id)).collect();
            for copy in &part.copies {
                let Some((_, value)) = values.copies[*copy] else { continue };
                let group = usage.step_count() as u32;
                // What others read is theirs until this split has waited for them.
                let waited = self.schedule.transfers[*copy].after == part.waits.len();
                let reads = if waited { std::mem::take(&mut keep) } else { Vec::new() };
                usage.push_step(StepView { arena, group, reads: &reads, writes: &[value], overwrites: &[] });
            }
            let id = |value: StepValue| match value {
                StepValue::Temporary(number) => Some(values.temporary(split, number).1),
                StepValue::Tensor(tensor) => match part.reads_copy.get(&tensor) {
                    Some(copy) => values.copies[*copy].map(|(_, id)| id),
                    None => {
                        values.tensors[tensor.index()].filter(|(home, _)| *home == domain).map(|(_, id)| id)
                    }
                },
            };
            let observed = part.observed.and_then(|seen| values.tensors[seen.index()]).map(|(_, id)| id);
            let held = Held { to_first: &keep, to_last: observed.as_slice() };
            usage
                .push_lowered(self.graph, steps, arena, held, &id)
                .map_err(|source| self.failed(domain, source))?;
        }
        Ok((usages, values))
    }

    pub(crate) fn failed(&self, domain: usize, source: orlop_alloc::Error) -> Error {
        Error::Memory { device: self.domains.types[domain].name().to_owned(), source: Box::new(source) }
    }

    fn push_values(&self, usages: &mut [Usage], values: &mut Values, holds: &[Hold]) {
        let mut layouts: HashMap<TensorDesc, u32> = HashMap::new();
        let mut kept = vec![false; self.graph.tensors().len()];
        let forever = holds.iter().filter(|hold| hold.until.is_none()).map(|hold| hold.root);
        forever.for_each(|root| kept[root.index()] = true);
        let mut result = vec![false; self.graph.tensors().len()];
        let results = self.graph.results();
        results.iter().for_each(|id| result[self.graph.tensor(*id).storage.root.index()] = true);
        values.tensors = vec![None; self.graph.tensors().len()];
        for id in self.graph.tensor_ids() {
            let tensor = self.graph.tensor(id);
            let root = tensor.storage.root;
            let leaf = self.graph.root_leaf(id);
            let in_arena = matches!(leaf, None | Some(Leaf::Input));
            let Some(home) = self.placement.home(self.graph, id).filter(|_| in_arena) else { continue };
            let domain = self.domains.of(home);
            let fresh = layouts.len() as u32;
            let layout = *layouts.entry(tensor.desc).or_insert(fresh);
            let usage = &mut usages[domain];
            let own = ValueId::new(usage.values().len());
            let root_value =
                if root == id { Some(own) } else { values.tensors[root.index()].map(|(_, id)| id) };
            // Roots come before their views.
            let Some(root_value) = root_value else { continue };
            let bytes = if root == id {
                self.domains.types[domain].alloc_bytes(&tensor.desc)
            } else {
                tensor.desc.bytes()
            };
            // What the caller sets and reads while other runs are in flight is theirs from beginning to end.
            let in_slots = self.depth > 1 && root == id && (leaf.is_some() || result[id.index()]);
            let output = kept[id.index()] || result[id.index()] || in_slots;
            let flags = Flags { output, ..Flags::default() };
            let info = ValueInfo { bytes, root: root_value, offset: tensor.storage.offset, layout, flags };
            usage.push_value(tensor.name.clone(), info);
            values.tensors[id.index()] = Some((domain, own));
            let arena = ArenaId::new(0);
            if root == id && (leaf.is_some() || in_slots) {
                usage.leaves.push((own, arena));
            }
            for slot in (1..self.depth).filter(|_| in_slots) {
                let sibling = ValueId::new(usage.values().len());
                usage.push_value(tensor.name.clone(), ValueInfo { root: sibling, ..info });
                usage.leaves.push((sibling, arena));
                values.slots.insert((id, slot), (domain, sibling));
            }
        }
        let add = |usages: &mut [Usage], domain: usize, name: &str, bytes: u64| {
            let own = ValueId::new(usages[domain].values().len());
            let layout = u32::MAX - own.index() as u32;
            let info = ValueInfo { bytes, root: own, offset: 0, layout, flags: Flags::default() };
            usages[domain].push_value(name, info);
            (domain, own)
        };
        for copy in &self.schedule.transfers {
            let domain = self.domains.of(copy.to);
            values.copies.push((!copy.kept).then(|| add(usages, domain, &copy.name, copy.room)));
        }
        for (part, steps) in self.schedule.splits.iter().zip(self.steps) {
            let domain = self.domains.of(part.device);
            values.temporaries.push((domain, ValueId::new(usages[domain].values().len())));
            for temporary in &steps.temporaries {
                add(usages, domain, &temporary.name, temporary.bytes);
            }
        }
    }

    /// What other domains read of each domain's values, and until which of its own splits it must stay: the first
    /// that begins after the reader has ended.
    fn holds(&self) -> Vec<Hold> {
        let clocks = self.schedule.clocks(self.machine.devices().len());
        let mut splits_of: Vec<Vec<usize>> = vec![Vec::new(); self.domains.types.len()];
        for (index, part) in self.schedule.splits.iter().enumerate() {
            splits_of[self.domains.of(part.device)].push(index);
        }
        let mut holds = Vec::new();
        let mut hold = |root: TensorId, reader: usize| {
            let Some(home) = self.placement.home(self.graph, root) else { return };
            let domain = self.domains.of(home);
            let device = self.schedule.splits[reader].device;
            if domain == self.domains.of(device) {
                return;
            }
            // A domain's splits come one after the other, so what one of them waited for, the later ones did.
            let own = &splits_of[domain];
            let before = |split: &usize| *split <= reader || clocks[*split][device.index()] < Some(reader);
            let until = own.get(own.partition_point(before)).copied();
            holds.push(Hold { root, until });
        };
        for (index, split) in self.schedule.splits.iter().enumerate() {
            for copy in split.copies.iter().filter(|copy| !self.schedule.transfers[**copy].kept) {
                hold(self.schedule.transfers[*copy].root, index);
            }
            for node in &split.nodes {
                for input in &self.graph.node(*node).inputs {
                    if !split.reads_copy.contains_key(input) {
                        hold(self.graph.tensor(*input).storage.root, index);
                    }
                }
            }
        }
        holds
    }
}

/// A root that other domains read, and the split of its own domain until which it must stay; `None`: to the end.
struct Hold {
    root: TensorId,
    until: Option<usize>,
}
