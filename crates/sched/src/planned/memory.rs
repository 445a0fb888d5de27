//! The memory of a schedule: a usage and a plan for each memory domain, and which value is what.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::{
    ArenaId, ArenaInfo, Flags, Held, Home, MemoryPlan, PlanOptions, SavedMemoryPlan, Usage, UsageBuilder,
    ValueId, plan_memory,
};
use orlop_backend::{BufferType, Steps, same_type};
use orlop_graph::{Graph, Leaf, TensorId};

use crate::{Command, DeviceId, Error, Machine, Placement, Schedule, SplitId, TransferId, ValueOrigin};

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
    /// By transfer.
    transfers: Vec<Option<At>>,
    /// The first of each split's temporaries; the others follow it.
    temporaries: Vec<At>,
}

impl Values {
    fn temporary(&self, split: SplitId, number: usize) -> At {
        let (domain, first) = self.temporaries[split.index()];
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

    pub(crate) fn transfer(&self, transfer: TransferId) -> Option<Spot> {
        self.spot(self.values.transfers[transfer.index()]?)
    }

    pub(crate) fn temporary(&self, split: SplitId, number: usize) -> Option<Spot> {
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
        for (split, steps) in steps.iter().enumerate().map(|(index, steps)| (SplitId::new(index), steps)) {
            for number in 0..steps.temporaries.len() {
                note(self.values.temporary(split, number), ValueOrigin::Temporary { split });
            }
        }
        for (transfer, at) in self.values.transfers.iter().enumerate() {
            at.iter().for_each(|at| note(*at, ValueOrigin::Transfer(TransferId::new(transfer))));
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
        let arenas = self.domains.types.iter().map(|memory| vec![ArenaInfo::of(&**memory)]);
        let mut builder = UsageBuilder::new(self.graph, arenas);
        let holds = self.holds();
        let mut values = self.add_values(&mut builder, &holds);
        let mut held_until: HashMap<SplitId, Vec<TensorId>> = HashMap::new();
        for hold in &holds {
            if let Some(split) = hold.until {
                held_until.entry(split).or_default().push(hold.root);
            }
        }
        for (id, steps) in self.schedule.ids().zip(self.steps) {
            let split = &self.schedule[id];
            let domain = self.domains.of(split.device);
            let held = held_until.get(&id).map_or(&[][..], Vec::as_slice);
            let mut held: Vec<ValueId> =
                held.iter().filter_map(|root| values.tensors[root.index()].map(|(_, id)| id)).collect();
            let mut waits = 0;
            for command in self.schedule.commands_of(id) {
                match command {
                    Command::Wait { .. } => waits += 1,
                    Command::Transfer { transfer, .. } => {
                        let Some((_, value)) = values.transfers[transfer.index()] else { continue };
                        // What others read is theirs until this split has waited for them.
                        let waited = waits == split.waits.len();
                        let held = if waited { std::mem::take(&mut held) } else { Vec::new() };
                        builder.add_copy(domain, ArenaId::new(0), value, &held);
                    }
                    Command::Compute { .. } => {
                        let own = |tensor: TensorId| {
                            values.tensors[tensor.index()].filter(|(home, _)| *home == domain)
                        };
                        let value = |tensor: TensorId| match split.reads_transfer.get(&tensor) {
                            Some(transfer) => values.transfers[transfer.index()].map(|(_, id)| id),
                            None => own(tensor).map(|(_, id)| id),
                        };
                        let observed = split.observed.and_then(own).map(|(_, id)| id);
                        let held = Held { to_first: &held, to_last: observed.as_slice() };
                        let first = builder
                            .add_steps(domain, steps, None, held, value)
                            .map_err(|source| self.failed(domain, source))?;
                        values.temporaries.push((domain, first));
                    }
                    Command::Record { .. } => {}
                }
            }
        }
        Ok((builder.finish(), values))
    }

    pub(crate) fn failed(&self, domain: usize, source: orlop_alloc::Error) -> Error {
        Error::Memory { device: self.domains.types[domain].name().to_owned(), source: Box::new(source) }
    }

    /// Adds the graph's tensors that lie in arenas, and transfers.
    fn add_values(&self, builder: &mut UsageBuilder<'_>, holds: &[Hold]) -> Values {
        let tensors = self.graph.tensors().len();
        let mut values = Values { tensors: vec![None; tensors], ..Values::default() };
        let mut kept = vec![false; tensors];
        let forever = holds.iter().filter(|hold| hold.until.is_none()).map(|hold| hold.root);
        forever.for_each(|root| kept[root.index()] = true);
        let mut result = vec![false; tensors];
        let results = self.graph.results();
        results.iter().for_each(|id| result[self.graph.tensor(*id).storage.root.index()] = true);
        for id in self.graph.tensor_ids() {
            let root = self.graph.tensor(id).storage.root;
            let Some(domain) = self.domain_of(root) else { continue };
            let is_leaf = self.graph.root_leaf(id).is_some();
            // What the caller sets and reads while other runs are in flight is theirs from beginning to end.
            let in_slots = self.depth > 1 && (is_leaf || result[root.index()]);
            let home = Home {
                usage: domain,
                arena: ArenaId::new(0),
                bytes: match root == id {
                    true => self.domains.types[domain].alloc_bytes(&self.graph.tensor(root).desc),
                    false => 0,
                },
                flags: Flags {
                    output: kept[root.index()] || result[root.index()] || in_slots,
                    ..Flags::default()
                },
                leaf: is_leaf || in_slots,
            };
            // Roots come before their views.
            let of = match root == id {
                true => None,
                false => match values.tensors[root.index()] {
                    Some((_, root)) => Some(root),
                    None => continue,
                },
            };
            let own = builder.add_tensor(id, &home, of);
            values.tensors[id.index()] = Some((domain, own));
            for slot in (1..self.depth).filter(|_| in_slots && root == id) {
                values.slots.insert((id, slot), (domain, builder.add_sibling(&home, own)));
            }
        }
        let transfers = self.schedule.transfers.iter().map(|transfer| {
            let domain = self.domains.of(transfer.to);
            (!transfer.resident).then(|| (domain, builder.add_memory(domain, &transfer.name, transfer.room)))
        });
        values.transfers = transfers.collect();
        values
    }

    /// The domain whose arena a root lies in; `None` if it lies beside the arenas.
    pub(crate) fn domain_of(&self, root: TensorId) -> Option<usize> {
        let in_arena = matches!(self.graph.root_leaf(root), None | Some(Leaf::Input));
        let home = self.placement.home(self.graph, root).filter(|_| in_arena)?;
        Some(self.domains.of(home))
    }

    /// What other domains read of each domain's values, and until which of its own splits it must stay: the first
    /// that begins after the reader has ended.
    fn holds(&self) -> Vec<Hold> {
        let clocks = self.schedule.clocks(self.machine.devices().len());
        let mut splits_of: Vec<Vec<SplitId>> = vec![Vec::new(); self.domains.types.len()];
        for (id, split) in self.schedule.ids().zip(&self.schedule.splits) {
            splits_of[self.domains.of(split.device)].push(id);
        }
        let mut holds = Vec::new();
        let mut hold = |root: TensorId, reader: SplitId| {
            let Some(home) = self.placement.home(self.graph, root) else { return };
            let domain = self.domains.of(home);
            let device = self.schedule[reader].device;
            if domain == self.domains.of(device) {
                return;
            }
            // A domain's splits come one after the other, so what one of them waited for, the later ones did.
            let own = &splits_of[domain];
            let before =
                |split: &SplitId| *split <= reader || clocks[split.index()][device.index()] < Some(reader);
            let until = own.get(own.partition_point(before)).copied();
            holds.push(Hold { root, until });
        };
        for (id, split) in self.schedule.ids().zip(&self.schedule.splits) {
            for transfer in split
                .transfers
                .iter()
                .map(|transfer| &self.schedule[*transfer])
                .filter(|transfer| !transfer.resident)
            {
                hold(transfer.root, id);
            }
            for node in &split.nodes {
                for input in &self.graph.node(*node).inputs {
                    if !split.reads_transfer.contains_key(input) {
                        hold(self.graph.tensor(*input).storage.root, id);
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
    until: Option<SplitId>,
}
