//! Planning a placed graph: everything that is known before memory is allocated. Pure values.
//!
//! [`Planned::new`] goes this way:
//! 1. The placement is cut into a **schedule** ([`crate::Schedule`]).
//! 2. Each split is **lowered** to the steps of its device.
//! 3. Devices whose results go to the same memory are one **domain**. Each domain has a **usage**: the steps of its own
//!    queues, with the transfers that they make. What another domain reads is **held** until the first split of its own domain
//!    that begins after the reader has ended.
//! 4. Each domain's memory is **planned**; steps may then change places within their split where that needs less.
//! 5. **Budgets** decide which copies of weights are **resident** (they stay on the device) and which are **offloaded**
//!    (every run transfers them); a schedule over budget is cut and planned again.
//! 6. Where several runs may be in flight, **cross-run waits** keep a run from overwriting what the run before still reads.

pub(crate) mod arena_steps;
pub(crate) mod budget;
pub(crate) mod cross_run;
pub(crate) mod fit;
pub(crate) mod memory;
pub(crate) mod observer;
mod order;
pub(crate) mod prediction;
pub(crate) mod signature;

use std::sync::Arc;

use orlop_alloc::{MemoryPlan, StepOrder};
use orlop_backend::{SegmentTables, Steps};
use orlop_graph::{Graph, TensorId};

use self::budget::{Attempt, Budgets, resident_bytes};
use self::cross_run::{CrossRunWait, cross_run_waits};
use self::memory::{Domains, MemoryPlanner, PlannedMemory};
use self::signature::signature;
use crate::error::failed;
use crate::schedule::split::{OffloadedWeights, split_offloading};
use crate::{
    Constraints, DeviceId, Error, Machine, MachineFacts, Placement, PlacementReason, Schedule,
    SessionOptions, SplitId, place_by_rules,
};

/// A placed graph, split, lowered and planned: everything that is known before any memory is allocated.
///
/// [`Session::adopt`](crate::Session::adopt) allocates what it says, and runs it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What it was planned for.
    pub(crate) constraints: Constraints,
    /// Placed by rules, not by the caller.
    pub(crate) by_rules: bool,
    /// The graph that was planned.
    pub(crate) graph: Graph,
    /// The graph's.
    pub(crate) signature: u64,
    /// Runs that may be in flight.
    pub(crate) depth: usize,
    pub(crate) placement: Placement,
    pub(crate) schedule: Schedule,
    pub(crate) steps: Vec<Steps>,
    pub(crate) memory: Arc<PlannedMemory>,
    /// What runs wait for of the run before, if several may be in flight.
    pub(crate) cross_run: Vec<CrossRunWait>,
}

impl Planned {
    /// Places a graph by rules, and plans it as [`Planned::new`] does.
    ///
    /// # Errors
    /// As there, and as [`place_by_rules`].
    pub fn by_rules(
        graph: &Graph,
        machine: &Machine,
        constraints: &Constraints,
        options: &SessionOptions,
    ) -> Result<Planned, Error> {
        let placement = place_by_rules(graph, machine, constraints)?;
        let planned = Planned::new(graph, machine, constraints, placement, options)?;
        Ok(Planned { by_rules: true, ..planned })
    }

    /// Splits, lowers and plans a placed graph. Pure: nothing is allocated. The observer of the options is told.
    ///
    /// Copies of weights that are used on another device than they lie on are resident there as far as the device's budget
    /// allows; the rest is offloaded.
    ///
    /// # Errors
    /// What a device refuses to lower, what the planner refuses, [`Error::OverBudget`], and a placement, constraints or
    /// budgets that are another graph's or machine's.
    pub fn new(
        graph: &Graph,
        machine: &Machine,
        constraints: &Constraints,
        placement: Placement,
        options: &SessionOptions,
    ) -> Result<Planned, Error> {
        options.observer.planning(graph);
        constraints.check(graph, machine)?;
        placement.check(graph, machine)?;
        options.budgets.keys().copied().max().map_or(Ok(()), |device| machine.check_device(device))?;
        let domains = Domains::new(machine);
        let depth = options.depth.max(1);
        let attempt = |offloaded: &OffloadedWeights| {
            let schedule = split_offloading(graph, machine, constraints, &placement, offloaded);
            let steps = lower(graph, machine, constraints, &placement, &schedule, options)?;
            let (domains, placement) = (&domains, &placement);
            let (schedule_ref, steps_ref) = (&schedule, &steps[..]);
            let scene = MemoryPlanner {
                graph,
                machine,
                domains,
                placement,
                schedule: schedule_ref,
                steps: steps_ref,
                depth,
            };
            let memory = scene.plan(&options.plan, &options.known)?;
            let better = match options.order {
                StepOrder::Smallest => scene.reordered(&memory, &options.plan, &options.known)?,
                StepOrder::Given => None,
            };
            let (steps, memory) = better.unwrap_or((steps, memory));
            Ok(Attempt { schedule, steps, memory })
        };
        let budgets = Budgets { machine, domains: &domains, budgets: &options.budgets };
        let offloaded = placement.nodes.iter().filter_map(|placed| match placed.why {
            PlacementReason::Offloaded(weight) if !options.keep_offloaded => {
                Some(graph.tensor(weight).storage.root)
            }
            _ => None,
        });
        let Attempt { schedule, steps, memory } = budgets.fit(attempt, &offloaded.collect())?;
        let cross_run = match options.depth {
            0 | 1 => Vec::new(),
            _ => cross_run_waits(graph, &domains, &placement, &schedule),
        };
        Ok(Planned {
            constraints: constraints.clone(),
            by_rules: false,
            graph: graph.clone(),
            signature: signature(graph),
            depth,
            placement,
            schedule,
            steps,
            memory: Arc::new(memory),
            cross_run,
        })
    }

    /// Where everything runs.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The splits and transfers.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The plan of a device's arena; devices that share one have the same.
    ///
    /// # Panics
    /// If the device is another machine's and out of range here.
    pub fn memory_plan(&self, machine: &Machine, device: DeviceId) -> &Arc<MemoryPlan> {
        &self.memory.plans[Domains::new(machine).of(device)]
    }

    /// Bytes of the copies of weights that would be resident on a device.
    pub fn resident_bytes(&self, device: DeviceId) -> u64 {
        resident_bytes(&self.schedule, device)
    }
}

/// Every split as its device runs it.
fn lower(
    graph: &Graph,
    machine: &Machine,
    constraints: &Constraints,
    placement: &Placement,
    schedule: &Schedule,
    options: &SessionOptions,
) -> Result<Vec<Steps>, Error> {
    let readers = readers(graph, schedule);
    let mut tables = SegmentTables::new(graph);
    let mut lowered = Vec::with_capacity(schedule.splits.len());
    for (id, split) in schedule.ids().zip(&schedule.splits) {
        let lies = |tensor: TensorId| {
            if split.reads_transfer.contains_key(&tensor) {
                return Some(Arc::clone(machine.arena(split.device)));
            }
            match placement.home(graph, tensor) {
                Some(home) => Some(Arc::clone(machine.arena(home))),
                None => constraints.lies(graph, tensor).cloned(),
            }
        };
        let read_later = |root: TensorId| readers[root.index()].last().is_some_and(|reader| *reader > id);
        let segment = tables.segment(graph, &split.nodes, lies, read_later, split.observed);
        let device = machine.device(split.device);
        let steps = device.lower(&segment, &options.lower);
        lowered.push(steps.map_err(|source| failed(device.name(), id, source))?);
    }
    Ok(lowered)
}

/// The splits that read each root.
fn readers(graph: &Graph, schedule: &Schedule) -> Vec<Vec<SplitId>> {
    let mut readers: Vec<Vec<SplitId>> = vec![Vec::new(); graph.tensors().len()];
    for (id, split) in schedule.ids().zip(&schedule.splits) {
        for input in split.nodes.iter().flat_map(|node| &graph.node(*node).inputs) {
            let readers = &mut readers[graph.tensor(*input).storage.root.index()];
            if readers.last() != Some(&id) {
                readers.push(id);
            }
        }
    }
    readers
}
