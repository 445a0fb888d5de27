use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::{
    ArenaId, ArenaInfo, Flags, MemoryPlan, PlanOptions, StepView, Unread, Usage, ValueId, ValueInfo,
    plan_memory,
};
use orlop_backend::{BufferType, Steps, Value, same_type};
use orlop_graph::{Graph, Leaf, TensorDesc, TensorId};

use crate::{DeviceIx, Error, Machine, Placement, Schedule};

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

    pub(crate) fn of(&self, device: DeviceIx) -> usize {
        self.of_device[device.index()]
    }
}

/// The memory of one schedule: a plan for each domain, and what its values are.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) plans: Vec<Arc<MemoryPlan>>,
    values: Values,
}

/// Which value of which domain a thing is.
#[derive(Clone, Debug, Default)]
struct Values {
    tensors: HashMap<TensorId, (usize, ValueId)>,
    copies: HashMap<usize, (usize, ValueId)>,
    temporaries: HashMap<(usize, usize), (usize, ValueId)>,
}

/// A place in one domain's plan.
pub(crate) type Spot = (usize, orlop_alloc::Place);

impl Memory {
    pub(crate) fn tensor(&self, id: TensorId) -> Option<Spot> {
        self.spot(self.values.tensors.get(&id))
    }

    pub(crate) fn copy(&self, copy: usize) -> Option<Spot> {
        self.spot(self.values.copies.get(&copy))
    }

    pub(crate) fn temporary(&self, split: usize, number: usize) -> Option<Spot> {
        self.spot(self.values.temporaries.get(&(split, number)))
    }

    fn spot(&self, value: Option<&(usize, ValueId)>) -> Option<Spot> {
        let (domain, id) = value?;
        Some((*domain, self.plans[*domain].place(*id)?))
    }
}

/// Everything that planning a schedule's memory depends on.
pub(crate) struct Scene<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) machine: &'a Machine,
    pub(crate) domains: &'a Domains,
    pub(crate) placement: &'a Placement,
    pub(crate) schedule: &'a Schedule,
    pub(crate) steps: &'a [Steps],
    /// Copies that lie outside the arenas and stay.
    pub(crate) resident: &'a [bool],
}

impl Scene<'_> {
    pub(crate) fn plan(&self, options: &PlanOptions) -> Result<Memory, Error> {
        let (usages, values) = self.usages()?;
        let plan = |(domain, usage): (usize, Usage)| {
            let plan = plan_memory(&Arc::new(usage), options);
            plan.map(Arc::new).map_err(|source| self.failed(domain, source))
        };
        let plans = usages.into_iter().enumerate().map(plan).collect::<Result<_, _>>()?;
        Ok(Memory { plans, values })
    }

    /// One usage a domain, on the steps of its own devices.
    fn usages(&self) -> Result<(Vec<Usage>, Values), Error> {
        let info = |buffer_type: &Arc<dyn BufferType>| ArenaInfo {
            name: buffer_type.name().to_owned(),
            alignment: buffer_type.alignment(),
            max_chunk: buffer_type.max_bytes(),
        };
        let mut usages: Vec<Usage> =
            self.domains.types.iter().map(|t| Usage::new(vec![info(t)], Unread::Dies)).collect();
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
                held.iter().filter_map(|root| values.tensors.get(root).map(|(_, id)| *id)).collect();
            for copy in part.copies.iter().filter_map(|copy| values.copies.get(copy)) {
                let group = usage.step_count() as u32;
                let reads = std::mem::take(&mut keep);
                usage.push_step(StepView { arena, group, reads: &reads, writes: &[copy.1], overwrites: &[] });
            }
            let id = |value: Value| match value {
                Value::Temporary(number) => values.temporaries.get(&(split, number)).map(|(_, id)| *id),
                Value::Tensor(tensor) => match part.reads_copy.get(&tensor) {
                    Some(copy) => values.copies.get(copy).map(|(_, id)| *id),
                    None => {
                        let here = values.tensors.get(&tensor).filter(|(home, _)| *home == domain);
                        here.map(|(_, id)| *id)
                    }
                },
            };
            usage
                .push_lowered(self.graph, steps, arena, &keep, &id)
                .map_err(|source| self.failed(domain, source))?;
        }
        Ok((usages, values))
    }

    fn failed(&self, domain: usize, source: orlop_alloc::Error) -> Error {
        Error::Memory { device: self.domains.types[domain].name().to_owned(), source: Box::new(source) }
    }

    fn push_values(&self, usages: &mut [Usage], values: &mut Values, holds: &[Hold]) {
        let mut layouts: HashMap<TensorDesc, u32> = HashMap::new();
        let mut kept = vec![false; self.graph.tensors().len()];
        let results = self.graph.results();
        let forever = holds.iter().filter(|hold| hold.until.is_none()).map(|hold| hold.root);
        let result_roots = results.iter().map(|id| self.graph.tensor(*id).storage.root);
        result_roots.chain(forever).for_each(|root| kept[root.index()] = true);
        for id in self.graph.tensor_ids() {
            let tensor = self.graph.tensor(id);
            let root = tensor.storage.root;
            let in_arena =
                !matches!(self.graph.root_leaf(id), Some(Leaf::Weight | Leaf::State | Leaf::Persistent));
            let Some(home) = self.placement.home(self.graph, id).filter(|_| in_arena) else { continue };
            let domain = self.domains.of(home);
            let fresh = layouts.len() as u32;
            let layout = *layouts.entry(tensor.desc).or_insert(fresh);
            let usage = &mut usages[domain];
            let own = ValueId::new(usage.values().len());
            let root_value =
                if root == id { Some(own) } else { values.tensors.get(&root).map(|(_, id)| *id) };
            // Roots come before their views.
            let Some(root_value) = root_value else { continue };
            let bytes = if root == id {
                self.domains.types[domain].alloc_bytes(&tensor.desc)
            } else {
                tensor.desc.bytes()
            };
            let flags = Flags { output: kept[id.index()], ..Flags::default() };
            let info = ValueInfo { bytes, root: root_value, offset: tensor.storage.offset, layout, flags };
            usage.push_value(tensor.name.clone(), info);
            values.tensors.insert(id, (domain, own));
            if root == id && self.graph.root_leaf(id) == Some(Leaf::Input) {
                usage.leafs.push((own, ArenaId::new(0)));
            }
        }
        let add = |usages: &mut [Usage], domain: usize, name: &str, bytes: u64| {
            let own = ValueId::new(usages[domain].values().len());
            let layout = u32::MAX - own.index() as u32;
            let info = ValueInfo { bytes, root: own, offset: 0, layout, flags: Flags::default() };
            usages[domain].push_value(name, info);
            (domain, own)
        };
        for (index, copy) in self.schedule.copies.iter().enumerate() {
            if !self.resident[index] {
                let domain = self.domains.of(copy.to);
                values.copies.insert(index, add(usages, domain, &copy.name, copy.room));
            }
        }
        for (split, (part, steps)) in self.schedule.splits.iter().zip(self.steps).enumerate() {
            for (number, temporary) in steps.temporaries.iter().enumerate() {
                let domain = self.domains.of(part.device);
                let value = add(usages, domain, &temporary.name, temporary.bytes);
                values.temporaries.insert((split, number), value);
            }
        }
    }

    /// What other domains read of each domain's values, and until which of its own splits it must stay: the first
    /// that begins after the reader has ended.
    fn holds(&self) -> Vec<Hold> {
        let clocks = self.schedule.clocks(self.machine.devices().len());
        let mut holds = Vec::new();
        let mut hold = |root: TensorId, reader: usize| {
            let Some(home) = self.placement.home(self.graph, root) else { return };
            let domain = self.domains.of(home);
            let device = self.schedule.splits[reader].device;
            if domain == self.domains.of(device) {
                return;
            }
            let until = (reader + 1..self.schedule.splits.len()).find(|split| {
                self.domains.of(self.schedule.splits[*split].device) == domain
                    && clocks[*split][device.index()] >= Some(reader)
            });
            holds.push(Hold { root, until });
        };
        for (index, split) in self.schedule.splits.iter().enumerate() {
            for copy in split.copies.iter().filter(|copy| !self.resident[**copy]) {
                hold(self.schedule.copies[*copy].root, index);
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
