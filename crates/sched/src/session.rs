use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use orlop_alloc::{
    Arenas, Error as AllocError, Externals, Growth, MemoryPlan, PlanOptions, SetTensor, TensorSet,
};
use orlop_backend::{
    BufferType, Claims, DeviceError, LowerOptions, Queue, RunOptions, Slot, Steps, StoredTensor,
};
use orlop_graph::{Graph, Leaf, Origin, TensorId};

use crate::compile::{Compiled, part};
use crate::memory::{Domains, Memory, Spot};
use crate::planned::Planned;
use crate::race::RaceChecker;
use crate::resident::Residents;
use crate::run::run_all;
use crate::{DeviceIx, Error, Machine, Placement, Schedule, Wishes, place_by_rules};

/// Runs graphs over all devices of a machine. `prepare`, `set`, `run` and `get` mean what they mean on one device.
///
/// Each device has a queue of its own. A split waits only for the splits of other devices whose results it needs, so
/// devices work side by side where the graph allows it.
pub struct Session {
    pub(crate) machine: Machine,
    pub(crate) domains: Domains,
    queues: Vec<Box<dyn Queue>>,
    pub(crate) options: SessionOptions,
    /// One a domain.
    pub(crate) arenas: Vec<Arenas>,
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) residents: Residents,
    /// The plan whose results are in the arenas.
    pub(crate) results_of: Option<PlanId>,
}

/// Choices of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// How graphs are lowered.
    pub lower: LowerOptions,
    /// How memory is planned.
    pub plan: PlanOptions,
    /// How arenas grow.
    pub growth: Growth,
    /// Most bytes of each device's arena, by position; none for no limit.
    pub budgets: HashMap<DeviceIx, u64>,
}

/// A graph that a session has prepared; prints as `p0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(usize);

impl fmt::Debug for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// A graph ready to run: pure values, and programs once it has run.
pub(crate) struct Prepared {
    pub(crate) graph: Arc<Graph>,
    externals: Externals,
    placement: Placement,
    pub(crate) schedule: Schedule,
    pub(crate) steps: Vec<Steps>,
    pub(crate) memory: Arc<Memory>,
    persistent: HashMap<TensorId, StoredTensor>,
    /// Copies that stay on their device: position in the schedule, number among the residents.
    pub(crate) resident: BTreeMap<usize, usize>,
    pub(crate) compiled: Option<Compiled>,
    pub(crate) inputs: Vec<TensorId>,
    /// Inputs that were not set since the last run.
    pub(crate) missing: Vec<TensorId>,
}

impl Session {
    /// A session over a machine.
    ///
    /// # Errors
    /// What keeps a device from making a queue.
    pub fn new(machine: Machine, options: SessionOptions) -> Result<Session, Error> {
        let domains = Domains::new(&machine);
        let mut queues = Vec::with_capacity(machine.devices().len());
        for device in machine.devices() {
            queues.push(device.queue().map_err(|source| failed(device.name(), 0, source))?);
        }
        let arenas = domains.types.iter().map(|arena| Arenas::new(vec![Arc::clone(arena)])).collect();
        let residents = Residents::default();
        let prepared = Vec::new();
        Ok(Session { machine, domains, queues, options, arenas, prepared, residents, results_of: None })
    }

    /// The devices.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Places a graph by rules, and prepares it.
    ///
    /// # Errors
    /// As [`Session::prepare_placed`] and [`place_by_rules`].
    pub fn prepare(&mut self, graph: &Arc<Graph>, externals: &Externals) -> Result<PlanId, Error> {
        externals.check(graph)?;
        let wishes = wishes(graph, externals);
        let placement = place_by_rules(graph, &self.machine, &wishes)?;
        self.prepare_placed(graph, externals, &wishes, placement)
    }

    /// Splits, lowers and plans a placed graph, and makes room for it. Where external leafs lie is taken from
    /// `externals`, whatever the wishes say.
    ///
    /// # Errors
    /// [`AllocError::MissingExternal`] and its like, what a device refuses, [`Error::OverBudget`], and memory that
    /// cannot be had; the session is then as it was, unless it grows by [`Growth::Replace`]: then inputs and results
    /// of other graphs are gone.
    pub fn prepare_placed(
        &mut self,
        graph: &Arc<Graph>,
        externals: &Externals,
        wishes: &Wishes,
        placement: Placement,
    ) -> Result<PlanId, Error> {
        externals.check(graph)?;
        let wishes = Wishes { pinned: pinned(graph, externals), ..wishes.clone() };
        let planned = Planned::new(graph, &self.machine, &wishes, placement, &self.options)?;
        let Planned { placement, schedule, steps, memory } = planned;
        let persistent = self.persistents(graph, &placement)?;
        let residents = self.residents.len();
        let resident = self.residents_for(&schedule, externals);
        let resident = resident.and_then(|resident| self.make_room(&memory).map(|()| resident));
        let resident = resident.inspect_err(|_| self.residents.truncate(residents))?;
        let inputs: Vec<TensorId> = leafs_of(graph, Leaf::Input).collect();
        self.prepared.push(Prepared {
            graph: Arc::clone(graph),
            externals: externals.clone(),
            placement,
            schedule,
            steps,
            memory: Arc::new(memory),
            persistent,
            resident,
            compiled: None,
            missing: inputs.clone(),
            inputs,
        });
        Ok(PlanId(self.prepared.len() - 1))
    }

    /// Sets an input or a persistent leaf, all of it.
    ///
    /// # Errors
    /// [`AllocError::NotInput`], [`AllocError::UnknownPlan`], and what the buffer refuses.
    pub fn set(&mut self, plan: PlanId, input: TensorId, bytes: &[u8]) -> Result<(), Error> {
        self.room_for(plan)?;
        let prepared = self.get_prepared(plan)?;
        let tensor = prepared.tensor(input)?;
        if let Some(stored) = prepared.persistent.get(&input) {
            return set_whole(stored, bytes);
        }
        if tensor.origin != Origin::Leaf(Leaf::Input) {
            return Err(AllocError::NotInput { tensor: tensor.name.clone() }.into());
        }
        set_whole(&self.in_arena(prepared, input)?, bytes)?;
        self.results_of = None;
        for (index, prepared) in self.prepared.iter_mut().enumerate() {
            if index == plan.0 {
                prepared.missing.retain(|missing| *missing != input);
            } else {
                prepared.missing.clone_from(&prepared.inputs);
            }
        }
        Ok(())
    }

    /// Runs a graph once on all its devices and waits for them.
    ///
    /// # Errors
    /// [`AllocError::InputNotSet`] and [`DeviceError::Busy`], which change nothing; [`Error::Device`] with the device and
    /// split that failed: all devices have stopped then, and inputs must be set anew.
    pub fn run(&mut self, plan: PlanId, options: &RunOptions) -> Result<(), Error> {
        self.run_observed(plan, options, &mut |_, _| true)
    }

    /// As [`Session::run`]; `observe` sees each result that was to be observed ([`Wishes::observed`]) as soon as it is
    /// computed, and ends the run by returning `false`.
    ///
    /// # Errors
    /// As there; [`DeviceError::Cancelled`] if `observe` ended the run, [`Error::ObserverPanicked`] if it panicked.
    pub fn run_observed(
        &mut self,
        plan: PlanId,
        options: &RunOptions,
        observe: &mut dyn FnMut(TensorId, &[u8]) -> bool,
    ) -> Result<(), Error> {
        self.room_for(plan)?;
        let prepared = self.get_prepared(plan)?;
        if let Some(missing) = prepared.missing.first() {
            return Err(AllocError::InputNotSet(prepared.graph.tensor(*missing).name.clone()).into());
        }
        if prepared.compiled.is_none() {
            let compiled = self.compile(prepared)?;
            self.prepared[plan.0].compiled = Some(compiled);
        }
        let prepared = &self.prepared[plan.0];
        let Some(compiled) = &prepared.compiled else { return Err(AllocError::NotReserved.into()) };
        for (copy, number) in &prepared.resident {
            let copy = &prepared.schedule.copies[*copy];
            let name = self.machine.name(copy.to);
            self.residents.refresh(*number).map_err(|source| failed(name, copy.split, source))?;
        }
        let wanted = compiled.touches.iter().map(|(buffer, kind)| (buffer, *kind));
        let claims = Claims::take(wanted).map_err(AllocError::from)?;
        for prepared in &mut self.prepared {
            prepared.missing.clone_from(&prepared.inputs);
        }
        self.results_of = None;
        let prepared = &self.prepared[plan.0];
        let Some(compiled) = &prepared.compiled else { return Err(AllocError::NotReserved.into()) };
        run_all(prepared, compiled, &mut self.queues, &claims, options, observe).map_err(|first| {
            if first.observer_panicked {
                return Error::ObserverPanicked { split: first.split };
            }
            failed(self.machine.name(first.device), first.split, *first.source)
        })?;
        self.results_of = Some(plan);
        Ok(())
    }

    /// Reads an output, a persistent leaf or a view of one, all of it.
    ///
    /// # Errors
    /// [`AllocError::NotOutput`], [`AllocError::NotRun`], and what the buffer refuses.
    pub fn get(&self, plan: PlanId, output: TensorId, bytes: &mut [u8]) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        let tensor = prepared.tensor(output)?;
        let outside = !matches!(prepared.graph.root_leaf(output), None | Some(Leaf::Input));
        if !outside && !prepared.graph.results().contains(&output) {
            return Err(AllocError::NotOutput { tensor: tensor.name.clone() }.into());
        }
        if !outside && self.results_of != Some(plan) {
            return Err(AllocError::NotRun { tensor: tensor.name.clone() }.into());
        }
        let stored = if outside { prepared.outside(output)? } else { self.in_arena(prepared, output)? };
        check_length(&stored, bytes.len() as u64)?;
        Ok(stored.get(0, bytes).map_err(AllocError::from)?)
    }

    /// Where everything runs.
    ///
    /// # Errors
    /// [`AllocError::UnknownPlan`].
    pub fn placement(&self, plan: PlanId) -> Result<&Placement, Error> {
        Ok(&self.get_prepared(plan)?.placement)
    }

    /// The splits and copies.
    ///
    /// # Errors
    /// [`AllocError::UnknownPlan`].
    pub fn schedule(&self, plan: PlanId) -> Result<&Schedule, Error> {
        Ok(&self.get_prepared(plan)?.schedule)
    }

    /// The memory plan of a device's arena.
    ///
    /// # Errors
    /// [`AllocError::UnknownPlan`], [`Error::UnknownDevice`].
    pub fn memory_plan(&self, plan: PlanId, device: DeviceIx) -> Result<&Arc<MemoryPlan>, Error> {
        self.machine.check(device)?;
        Ok(&self.get_prepared(plan)?.memory.plans[self.domains.of(device)])
    }

    /// Bytes of a device's arena; devices that share one count it each. 0 for a device of another machine.
    pub fn arena_bytes(&self, device: DeviceIx) -> u64 {
        if self.machine.check(device).is_err() {
            return 0;
        }
        self.arenas[self.domains.of(device)].bytes(0).unwrap_or(0)
    }

    /// Compares the bytes that each split touches, where they lie now, with who waits for whom. Independent of how
    /// the memory was planned.
    ///
    /// # Errors
    /// [`Error::Race`] for the first pair of splits that could meet; that would be a mistake of this crate.
    pub fn check_races(&self, plan: PlanId) -> Result<(), Error> {
        self.check_races_in(plan, &self.get_prepared(plan)?.schedule)
    }

    /// As [`Session::check_races`], with who waits for whom taken from another schedule of the same splits: what if an
    /// edge were missing?
    ///
    /// # Errors
    /// As there, and [`Error::ForeignSchedule`] for other splits.
    pub fn check_races_in(&self, plan: PlanId, schedule: &Schedule) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        let same = |(a, b): (&crate::Split, &crate::Split)| a.device == b.device && a.nodes == b.nodes;
        let (own, given) = (&prepared.schedule.splits, &schedule.splits);
        if own.len() != given.len() || !own.iter().zip(given).all(same) {
            return Err(Error::ForeignSchedule { splits: own.len(), given: given.len() });
        }
        let compiled = self.compile(prepared)?;
        let mut checker = RaceChecker::default();
        for (index, part) in prepared.schedule.splits.iter().enumerate() {
            for (from, to) in part.copies.iter().filter_map(|copy| compiled.copies[*copy].as_ref()) {
                checker.copy(index, from, to);
            }
            checker.steps(index, &prepared.steps[index], &self.bindings(prepared, index)?);
        }
        Ok(checker.check(schedule, self.machine.devices().len())?)
    }

    fn persistents(
        &self,
        graph: &Graph,
        placement: &Placement,
    ) -> Result<HashMap<TensorId, StoredTensor>, Error> {
        let mut stored = HashMap::new();
        for id in leafs_of(graph, Leaf::Persistent) {
            let device = placement.leaf(id).unwrap_or_default();
            let set = [SetTensor::new(graph.tensor(id).name.as_str(), graph.tensor(id).desc)];
            let set = TensorSet::allocate(self.machine.arena(device), &set).map_err(|error| {
                Error::Memory { device: self.machine.name(device).to_owned(), source: Box::new(error) }
            })?;
            stored.insert(id, set.tensors()[0].clone());
        }
        Ok(stored)
    }

    /// The copies of a schedule that stay, with their numbers among the residents.
    fn residents_for(
        &mut self,
        schedule: &Schedule,
        externals: &Externals,
    ) -> Result<BTreeMap<usize, usize>, Error> {
        let kept = schedule.copies.iter().enumerate().filter(|(_, copy)| copy.constant);
        let wanted = kept.map(|(index, copy)| Ok((index, copy, part(externals.get(copy.root), copy)?)));
        self.residents.find_or_add(&wanted.collect::<Result<Vec<_>, Error>>()?, &self.machine)
    }

    /// Makes sure that a plan's arenas are there: a larger graph that was refused may have cost them.
    fn room_for(&mut self, plan: PlanId) -> Result<(), Error> {
        let memory = Arc::clone(&self.get_prepared(plan)?.memory);
        self.make_room(&memory)
    }

    fn get_prepared(&self, plan: PlanId) -> Result<&Prepared, Error> {
        let plans = self.prepared.len();
        Ok(self.prepared.get(plan.0).ok_or(AllocError::UnknownPlan { plan: plan.0, plans })?)
    }

    pub(crate) fn slot(&self, spot: Option<Spot>) -> Option<Slot> {
        let (domain, place) = spot?;
        self.arenas[domain].slot(place)
    }

    pub(crate) fn in_arena(&self, prepared: &Prepared, id: TensorId) -> Result<StoredTensor, Error> {
        let tensor = prepared.graph.tensor(id);
        let slot = self.slot(prepared.memory.tensor(id)).ok_or_else(|| unbound(&tensor.name))?;
        Ok(StoredTensor::new(tensor.name.as_str(), tensor.desc, slot).map_err(AllocError::from)?)
    }
}

impl Prepared {
    fn tensor(&self, id: TensorId) -> Result<&orlop_graph::Tensor, Error> {
        let tensors = self.graph.tensors().len();
        self.graph.get(id).ok_or(Error::ForeignTensor { tensor: id, tensors })
    }

    /// A tensor whose root is kept beside the arenas.
    pub(crate) fn outside(&self, id: TensorId) -> Result<StoredTensor, Error> {
        let tensor = self.graph.tensor(id);
        let root = tensor.storage.root;
        let stored = self.persistent.get(&root).or_else(|| self.externals.get(root));
        let stored = stored.ok_or_else(|| unbound(&tensor.name))?;
        let view = stored.view(tensor.name.as_str(), tensor.desc, tensor.storage.offset);
        Ok(view.map_err(AllocError::from)?)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("machine", &self.machine)
            .field("plans", &self.prepared.len())
            .finish()
    }
}

/// The kinds of memory that a graph's external leafs lie in.
pub fn wishes(graph: &Graph, externals: &Externals) -> Wishes {
    Wishes { pinned: pinned(graph, externals), ..Wishes::default() }
}

fn pinned(graph: &Graph, externals: &Externals) -> HashMap<TensorId, Arc<dyn BufferType>> {
    let lies =
        |(id, _): (TensorId, Leaf)| Some((id, Arc::clone(externals.get(id)?.slot().buffer.buffer_type())));
    graph.leafs().filter_map(lies).collect()
}

fn leafs_of(graph: &Graph, kind: Leaf) -> impl Iterator<Item = TensorId> + '_ {
    graph.leafs().filter(move |(_, leaf)| *leaf == kind).map(|(id, _)| id)
}

pub(crate) fn unbound(name: &str) -> Error {
    AllocError::from(DeviceError::Unbound { value: name.to_owned() }).into()
}

pub(crate) fn failed(device: &str, split: usize, source: DeviceError) -> Error {
    // Whoever reaches for a lost device's memory meets the loss, too.
    let device = match &source {
        DeviceError::Lost { device, .. } => device.as_str(),
        _ => device,
    };
    Error::Device { device: device.to_owned(), split, source: Box::new(source) }
}

fn check_length(stored: &StoredTensor, given: u64) -> Result<(), Error> {
    let expected = stored.desc().bytes();
    if given == expected {
        return Ok(());
    }
    Err(AllocError::from(DeviceError::WrongLength { tensor: stored.name().to_owned(), expected, given })
        .into())
}

fn set_whole(stored: &StoredTensor, bytes: &[u8]) -> Result<(), Error> {
    check_length(stored, bytes.len() as u64)?;
    Ok(stored.set(0, bytes).map_err(AllocError::from)?)
}
