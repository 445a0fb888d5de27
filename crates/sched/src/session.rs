//! Sessions: memory, queues and runs.
//!
//! - **Preparing** a graph is planning it ([`crate::Planned`]) and adopting the plan: making room in the **arenas** (one
//!   for each memory domain, shared by all graphs, as large as the largest needs), allocating **persistent** leaves, and
//!   finding or adding **resident** copies of weights.
//! - **Compiling** binds the steps of each split to the places that the arenas have now. Programs are made at the first
//!   run, and again after an arena has moved.
//! - A **run** claims all buffers it touches, and gives each queue its commands ([`crate::Schedule::commands`]). A **slot**
//!   is what one run in flight has of its own: inputs, results and marks. Several runs may be in flight
//!   ([`SessionOptions::depth`]), all of one graph, the **occupant** of the arenas.
//! - A **mark** is an event in a queue's work; timed runs mark every piece, which makes a [`crate::Timeline`].
//! - When a device is lost, [`Session::recover`] plans every graph anew on the devices that are left.

mod compile;
mod contents;
pub(crate) mod flight;
mod inputs;
mod marks;
mod plans;
mod prepared;
pub(crate) mod race;
mod recover;
mod resident;
mod room;
mod run;
pub(crate) mod timeline;
mod typed;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use orlop_alloc::{
    Arenas, Externals, Growth, MemoryPlan, PlanOptions, SavedMemoryPlan, SetTensor, StepOrder, TensorSet,
};
use orlop_backend::{BufferType, LowerOptions, Queue, StoredTensor, same_type};
use orlop_graph::{Graph, Leaf, TensorId};

use self::compile::copied_bytes;
use self::inputs::{Inputs, leaves_of};
use self::prepared::{Prepared, Slot};
use self::resident::Residents;
use self::run::Awaited;
use crate::error::failed;
use crate::planned::memory::Domains;
use crate::{
    Constraints, DeviceId, Error, Machine, MachineFacts, Placement, PlanObserver, Planned, Schedule, Split,
    SplitId, TransferId,
};

/// Runs graphs over all devices of a machine. `prepare`, `set`, `run` and `get` mean what they mean on one device.
///
/// Each device has a queue of its own. A split waits only for the splits of other devices whose results it needs, so
/// devices work side by side where the graph allows it.
pub struct Session {
    pub(crate) machine: Machine,
    pub(crate) domains: Domains,
    pub(crate) queues: Vec<Box<dyn Queue>>,
    pub(crate) options: SessionOptions,
    /// One a domain.
    pub(crate) arenas: Vec<Arenas>,
    pub(crate) prepared: BTreeMap<PlanId, Prepared>,
    /// Plans that there have been.
    plans: usize,
    pub(crate) residents: Residents,
    /// The plan whose inputs and results are in the arenas, and whose runs are in flight.
    pub(crate) occupant: Option<PlanId>,
    /// Slots and numbers of the runs in flight, the oldest first.
    pub(crate) in_flight: VecDeque<(usize, u64)>,
    /// Runs that there have been.
    pub(crate) runs: u64,
    uses: u64,
}

/// Choices of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How graphs are lowered.
    pub lower: LowerOptions,
    /// How memory is planned.
    pub plan: PlanOptions,
    /// Whether steps may change places within their split.
    pub order: StepOrder,
    /// Plans that were made before: an arena whose usage has the signature of one of them is not planned anew.
    pub known: Arc<[SavedMemoryPlan]>,
    /// How arenas grow.
    pub growth: Growth,
    /// Most bytes of each device: its arena, and the copies of weights that are resident there. None for no limit.
    pub budgets: HashMap<DeviceId, u64>,
    /// Whether weights of nodes that a device takes over ([`PlacementReason::Offloaded`](crate::PlacementReason::Offloaded))
    /// become resident there, as far as its budget allows. Default yes; if not, they are offloaded: every run transfers them,
    /// each while the split before computes.
    pub keep_offloaded: bool,
    /// How many runs may be in flight. Each beyond the first costs memory for its inputs and results. Default 1.
    pub depth: usize,
    /// How many plans are kept and found again when an equal graph is prepared; beyond that, the one that was not used
    /// for longest is released. Default none: every preparation makes a plan, and all are kept.
    ///
    /// A plan that is found again is the old one, with what belongs to it: **persistent leaves have the contents that were
    /// set, or that earlier runs left, under the old preparation.** Set them after preparing if they must begin anew.
    /// A graph is equal if its structure, the places of its external leaves and its constraints are; names of tensors
    /// count, too.
    pub cache: Option<usize>,
    /// Sees every graph that is planned. Default none.
    pub observer: PlanObserver,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            lower: LowerOptions::default(),
            plan: PlanOptions::default(),
            order: StepOrder::default(),
            known: Arc::new([]),
            growth: Growth::default(),
            budgets: HashMap::new(),
            keep_offloaded: true,
            depth: 1,
            cache: None,
            observer: PlanObserver::default(),
        }
    }
}

/// A graph that a session has prepared; prints as `p0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(usize);

impl fmt::Debug for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// A graph to prepare.
pub(crate) struct Request<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) externals: &'a Externals,
    pub(crate) constraints: Constraints,
    /// `None`: by rules.
    pub(crate) placement: Option<Placement>,
}

impl<'a> Request<'a> {
    /// A graph with all its external leaves, which lie where `externals` says.
    pub(crate) fn new(
        graph: &'a Graph,
        externals: &'a Externals,
        constraints: &Constraints,
        placement: Option<Placement>,
    ) -> Result<Request<'a>, Error> {
        externals.check(graph)?;
        let constraints = Constraints { pinned: pinned(graph, externals), ..constraints.clone() };
        Ok(Request { graph, externals, constraints, placement })
    }
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
            queues.push(device.queue().map_err(|source| failed(device.name(), SplitId::default(), source))?);
        }
        let arenas = domains.types.iter().map(|arena| Arenas::new(vec![Arc::clone(arena)])).collect();
        Ok(Session {
            machine,
            domains,
            queues,
            options,
            arenas,
            prepared: BTreeMap::new(),
            plans: 0,
            residents: Residents::default(),
            occupant: None,
            in_flight: VecDeque::new(),
            runs: 0,
            uses: 0,
        })
    }

    /// The devices.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Places a graph by rules, and prepares it.
    ///
    /// # Errors
    /// As [`Session::prepare_with`].
    pub fn prepare(&mut self, graph: &Graph, externals: &Externals) -> Result<PlanId, Error> {
        self.prepare_with(graph, externals, &Constraints::default())
    }

    /// Places a graph by rules, with devices that the caller chose and results that the caller observes, and prepares it.
    /// Where external leaves lie is taken from `externals`, whatever the constraints say.
    ///
    /// # Errors
    /// As [`Session::prepare_placed`] and [`place_by_rules`](crate::place_by_rules).
    pub fn prepare_with(
        &mut self,
        graph: &Graph,
        externals: &Externals,
        constraints: &Constraints,
    ) -> Result<PlanId, Error> {
        let request = Request::new(graph, externals, constraints, None)?;
        self.prepare_request(request)
    }

    /// Splits, lowers and plans a placed graph, and makes room for it. Where external leaves lie is taken from
    /// `externals`, whatever the constraints say.
    ///
    /// # Errors
    /// [`orlop_alloc::Error::MissingExternal`] and its like, what a device refuses, [`Error::OverBudget`], and memory that
    /// cannot be had; the session is then as it was, unless it grows by [`Growth::Replace`]: then inputs and results
    /// of other graphs are gone.
    pub fn prepare_placed(
        &mut self,
        graph: &Graph,
        externals: &Externals,
        constraints: &Constraints,
        placement: Placement,
    ) -> Result<PlanId, Error> {
        let request = Request::new(graph, externals, constraints, Some(placement))?;
        self.prepare_request(request)
    }

    /// As [`Session::prepare_with`], but arenas do not grow: memory that was reserved must be enough.
    ///
    /// # Errors
    /// As there, and [`Error::WouldGrow`].
    pub fn prepare_within(
        &mut self,
        graph: &Graph,
        externals: &Externals,
        constraints: &Constraints,
    ) -> Result<PlanId, Error> {
        let request = Request::new(graph, externals, constraints, None)?;
        if let Some(known) = self.find_equal(&request) {
            return Ok(known);
        }
        let planned = self.plan(&request)?;
        self.check_room(&planned.memory)?;
        self.insert(graph, externals, planned.into())
    }

    /// Makes room for a graph that was planned before, and binds it: nothing is placed, lowered or planned.
    ///
    /// # Errors
    /// [`Error::ForeignPlan`] if it was planned for a graph that is not equal, other memory or another machine;
    /// [`orlop_alloc::Error::MissingExternal`] and its like; memory that cannot be had, as for [`Session::prepare_placed`].
    pub fn adopt(
        &mut self,
        graph: &Graph,
        externals: &Externals,
        planned: impl Into<Arc<Planned>>,
    ) -> Result<PlanId, Error> {
        let planned = planned.into();
        self.check_planned(graph, externals, &planned)?;
        self.insert(graph, externals, planned)
    }

    /// As [`Session::adopt`], but arenas do not grow: memory that was reserved must be enough.
    ///
    /// # Errors
    /// As there, and [`Error::WouldGrow`].
    pub fn adopt_within(
        &mut self,
        graph: &Graph,
        externals: &Externals,
        planned: impl Into<Arc<Planned>>,
    ) -> Result<PlanId, Error> {
        let planned = planned.into();
        self.check_planned(graph, externals, &planned)?;
        self.check_room(&planned.memory)?;
        self.insert(graph, externals, planned)
    }

    /// A plan must be of this graph, for memory of these kinds, on this session's machine.
    fn check_planned(&self, graph: &Graph, externals: &Externals, planned: &Planned) -> Result<(), Error> {
        externals.check(graph)?;
        let other = |planned_for: String| Err(Error::ForeignPlan { planned_for });
        if planned.graph != *graph {
            return other("another graph".to_owned());
        }
        if planned.depth != self.options.depth.max(1) {
            return other(format!("{} runs in flight at a time", planned.depth));
        }
        planned.placement.check(graph, &self.machine)?;
        if planned.memory.plans.len() != self.domains.types.len() {
            return other(format!("a machine with {} arenas", planned.memory.plans.len()));
        }
        let pinned = pinned(graph, externals);
        let planned = &planned.constraints.pinned;
        let lies = |leaf: &TensorId| match (planned.get(leaf), pinned.get(leaf)) {
            (Some(planned), Some(found)) => same_type(planned, found) || planned.allocates(found),
            (planned, found) => planned.is_none() && found.is_none(),
        };
        match pinned.keys().chain(planned.keys()).copied().filter(|leaf| !lies(leaf)).min() {
            Some(leaf) => other(format!("other memory of `{}`", graph.tensor(leaf).name)),
            None => Ok(()),
        }
    }

    fn prepare_request(&mut self, request: Request<'_>) -> Result<PlanId, Error> {
        if let Some(known) = self.find_equal(&request) {
            return Ok(known);
        }
        let planned = self.plan(&request)?;
        self.insert(request.graph, request.externals, planned.into())
    }

    /// The pure part of preparing.
    pub(crate) fn plan(&self, request: &Request<'_>) -> Result<Planned, Error> {
        let Request { graph, constraints, placement, .. } = request;
        let (machine, options) = (&self.machine, &self.options);
        match placement {
            Some(placement) => Planned::new(graph, machine, constraints, placement.clone(), options),
            None => Planned::by_rules(graph, machine, constraints, options),
        }
    }

    fn insert(
        &mut self,
        graph: &Graph,
        externals: &Externals,
        planned: Arc<Planned>,
    ) -> Result<PlanId, Error> {
        let prepared = self.make(graph, externals, planned)?;
        let id = PlanId(self.plans);
        self.plans += 1;
        self.prepared.insert(id, prepared);
        self.release_oldest();
        Ok(id)
    }

    /// Memory for a plan.
    pub(crate) fn make(
        &mut self,
        graph: &Graph,
        externals: &Externals,
        planned: Arc<Planned>,
    ) -> Result<Prepared, Error> {
        let persistent = self.persistents(graph, &planned.placement)?;
        let residents = self.residents.len();
        let resident = self.residents_for(&planned.schedule, externals);
        let resident = resident.and_then(|resident| self.make_room(&planned.memory).map(|()| resident));
        let resident = resident.inspect_err(|_| self.residents.truncate(residents))?;
        let depth = self.options.depth.max(1);
        let slot = || Slot { inputs: Inputs::of(graph), ..Slot::default() };
        let awaited = self.awaited(&planned);
        Ok(Prepared {
            graph: graph.clone(),
            externals: externals.clone(),
            used: self.tick(),
            results: graph.results(),
            planned,
            persistent,
            resident,
            awaited,
            compiled: None,
            slots: (0..depth).map(|_| slot()).collect(),
            next: 0,
            latest: None,
        })
    }

    /// What is waited for of each split: by another one, by the next run, or by the search for the cause of an error on a
    /// device beside the host.
    fn awaited(&self, planned: &Planned) -> Vec<Awaited> {
        let splits = &planned.schedule.splits;
        let beside = |split: &Split| self.machine.facts(split.device).asynchronous;
        let several = self.options.depth > 1;
        let end = |split: &Split| Awaited { end: several || beside(split), transfers: false };
        let mut awaited: Vec<Awaited> = splits.iter().map(end).collect();
        splits.iter().flat_map(|split| &split.waits).for_each(|split| awaited[split.index()].end = true);
        for wait in planned.cross_run.iter().filter(|wait| wait.copies_only) {
            awaited[wait.earlier.index()].transfers = true;
        }
        awaited
    }

    /// Where everything runs.
    ///
    /// # Errors
    /// [`Error::UnknownPlan`].
    pub fn placement(&self, plan: PlanId) -> Result<&Placement, Error> {
        Ok(&self.get_prepared(plan)?.planned.placement)
    }

    /// The splits and transfers.
    ///
    /// # Errors
    /// [`Error::UnknownPlan`].
    pub fn schedule(&self, plan: PlanId) -> Result<&Schedule, Error> {
        Ok(&self.get_prepared(plan)?.planned.schedule)
    }

    /// The memory plan of a device's arena.
    ///
    /// # Errors
    /// [`Error::UnknownPlan`], [`Error::UnknownDevice`].
    pub fn memory_plan(&self, plan: PlanId, device: DeviceId) -> Result<&Arc<MemoryPlan>, Error> {
        self.machine.check_device(device)?;
        Ok(&self.get_prepared(plan)?.planned.memory.plans[self.domains.of(device)])
    }

    /// Bytes of the copies of weights that are resident on a device.
    pub fn resident_bytes(&self, device: DeviceId) -> u64 {
        self.residents.bytes(device)
    }

    /// Bytes of a device's arena; devices that share one count it each. 0 for a device of another machine.
    pub fn arena_bytes(&self, device: DeviceId) -> u64 {
        if self.machine.check_device(device).is_err() {
            return 0;
        }
        self.arenas[self.domains.of(device)].bytes(0).unwrap_or(0)
    }

    /// Bytes of the persistent leaves of all plans on a device. 0 for a device of another machine.
    pub fn persistent_bytes(&self, device: DeviceId) -> u64 {
        let bytes = |prepared: &Prepared| -> u64 {
            let here = |id: &TensorId| prepared.planned.placement.leaf(*id).unwrap_or_default() == device;
            let leaves = prepared.persistent.iter().filter(|(id, _)| here(id));
            leaves.map(|(_, stored)| stored.desc().bytes()).sum()
        };
        self.prepared.values().map(bytes).sum()
    }

    /// Memory for a graph's persistent leaves, together on each device.
    fn persistents(
        &self,
        graph: &Graph,
        placement: &Placement,
    ) -> Result<HashMap<TensorId, StoredTensor>, Error> {
        let mut of_device: BTreeMap<DeviceId, Vec<TensorId>> = BTreeMap::new();
        for id in leaves_of(graph, Leaf::Persistent) {
            of_device.entry(placement.leaf(id).unwrap_or_default()).or_default().push(id);
        }
        let mut stored = HashMap::new();
        for (device, leaves) in of_device {
            let tensor = |id: &TensorId| {
                let tensor = graph.tensor(*id);
                SetTensor::new(tensor.name.as_str(), tensor.desc)
            };
            let set: Vec<SetTensor> = leaves.iter().map(tensor).collect();
            let set = TensorSet::allocate(self.machine.arena(device), &set).map_err(|error| {
                Error::Memory { device: self.machine.name(device).to_owned(), source: Box::new(error) }
            })?;
            stored.extend(leaves.into_iter().zip(set.tensors().iter().cloned()));
        }
        Ok(stored)
    }

    /// The resident copies of a schedule, with their numbers among the session's residents.
    fn residents_for(
        &mut self,
        schedule: &Schedule,
        externals: &Externals,
    ) -> Result<BTreeMap<TransferId, usize>, Error> {
        let resident = schedule.transfers.iter().enumerate().filter(|(_, transfer)| transfer.resident);
        let wanted = resident.map(|(index, transfer)| {
            Ok((TransferId::new(index), transfer, copied_bytes(externals.get(transfer.root), transfer)?))
        });
        self.residents.find_or_add(&wanted.collect::<Result<Vec<_>, Error>>()?, &self.machine)
    }

    /// Makes sure that a plan's arenas are there: a larger graph that was refused may have cost them.
    pub(crate) fn room_for(&mut self, plan: PlanId) -> Result<(), Error> {
        let memory = Arc::clone(&self.get_prepared(plan)?.planned.memory);
        self.make_room(&memory)
    }

    pub(crate) fn get_prepared(&self, plan: PlanId) -> Result<&Prepared, Error> {
        self.prepared.get(&plan).ok_or(Error::UnknownPlan { plan: plan.0, plans: self.plans })
    }

    pub(crate) fn get_prepared_mut(&mut self, plan: PlanId) -> Result<&mut Prepared, Error> {
        let unknown = Error::UnknownPlan { plan: plan.0, plans: self.plans };
        self.prepared.get_mut(&plan).ok_or(unknown)
    }

    /// Goes on counting where another session stopped, whose plans this one has taken over.
    pub(crate) fn continue_from(&mut self, other: &Session) {
        (self.plans, self.runs, self.uses) = (other.plans, other.runs, other.uses);
    }

    /// Counts uses of plans.
    pub(crate) fn tick(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("machine", &self.machine)
            .field("plans", &self.prepared.len())
            .field("in_flight", &self.in_flight.len())
            .finish()
    }
}

/// The kinds of memory that a graph's external leaves lie in.
pub fn constraints(graph: &Graph, externals: &Externals) -> Constraints {
    Constraints { pinned: pinned(graph, externals), ..Constraints::default() }
}

fn pinned(graph: &Graph, externals: &Externals) -> HashMap<TensorId, Arc<dyn BufferType>> {
    let lies =
        |(id, _): (TensorId, Leaf)| Some((id, Arc::clone(externals.get(id)?.slot().buffer.buffer_type())));
    graph.leaves().filter_map(lies).collect()
}
