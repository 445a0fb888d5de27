//! Placement by estimated time.

use std::collections::HashMap;

use orlop_graph::{Graph, NodeId};

use crate::schedule::estimate::seconds;
use crate::{
    Constraints, DeviceId, Error, MachineFacts, Placement, PlacementReason, Schedule, place_by_rules, split,
};

/// Limits of [`place_by_cost`].
#[derive(Clone, Debug)]
pub struct CostOptions {
    /// Most bytes of weights that may be kept on a device although they lie elsewhere. Default: none for any.
    pub resident: HashMap<DeviceId, u64>,
    /// Most schedules to look at. Default 1024.
    pub effort: usize,
}

impl Default for CostOptions {
    fn default() -> CostOptions {
        CostOptions { resident: HashMap::new(), effort: 1024 }
    }
}

/// Places a graph for the shortest [`estimate`](crate::estimate()): begins with [`place_by_rules`] and moves runs of
/// neighbouring nodes, and parts of them, to other devices, largest first, as long as the estimate falls and the weights
/// that must come along fit. So it is never worse than the rules by the same estimate.
///
/// What the caller assigned, and what writes into storage or is written into, stays where it is.
///
/// # Errors
/// As [`place_by_rules`].
pub fn place_by_cost<F: MachineFacts>(
    graph: &Graph,
    machine: &F,
    constraints: &Constraints<F::Memory>,
    options: &CostOptions,
) -> Result<Placement, Error> {
    let mut best = place_by_rules(graph, machine, constraints)?;
    let mut time = seconds(graph, machine, &split(graph, machine, constraints, &best));
    let movable = movable(graph, &best);
    let mut looked = 0;
    loop {
        let mut improved = false;
        let runs = runs(graph, &best, &movable);
        let mut parts: Vec<&[NodeId]> = Vec::new();
        runs.iter().for_each(|run| halve(run, &mut parts));
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        for run in parts {
            if run.iter().any(|node| best.node(*node).device != best.node(run[0]).device) {
                // Part of it was moved meanwhile.
                continue;
            }
            for device in machine.device_ids().filter(|device| *device != best.node(run[0]).device) {
                let able = |node: &NodeId| machine.refusal(device, graph, *node).is_none();
                if looked >= options.effort || !run.iter().all(able) {
                    continue;
                }
                looked += 1;
                let candidate = moved(graph, &best, run, device);
                let schedule = split(graph, machine, constraints, &candidate);
                let candidate_time = seconds(graph, machine, &schedule);
                if candidate_time < time && weights_fit(&schedule, machine, options) {
                    let saved = ((time - candidate_time) * 1e9) as u64;
                    best = candidate;
                    run.iter()
                        .for_each(|node| best.nodes[node.index()].why = PlacementReason::Cheaper { saved });
                    time = candidate_time;
                    improved = true;
                    break;
                }
            }
        }
        if !improved {
            return Ok(best);
        }
    }
}

/// Which nodes may be moved.
fn movable(graph: &Graph, placement: &Placement) -> Vec<bool> {
    let mut written = vec![0; graph.tensors().len()];
    for node in graph.nodes().iter().filter(|node| !node.op.is_view()) {
        written[graph.tensor(node.output).storage.root.index()] += 1;
    }
    let fixed = |id: NodeId| {
        let root = graph.tensor(graph.node(id).output).storage.root;
        let why = placement.node(id).why;
        matches!(why, PlacementReason::Assigned | PlacementReason::OwnsStorage(_) | PlacementReason::View)
            || root != graph.node(id).output
            || written[root.index()] > 1
    };
    graph.node_ids().map(|id| !fixed(id)).collect()
}

/// Neighbouring nodes of one device that may be moved; views between them do not count.
fn runs(graph: &Graph, placement: &Placement, movable: &[bool]) -> Vec<Vec<NodeId>> {
    let mut runs: Vec<Vec<NodeId>> = Vec::new();
    let mut broken = true;
    for id in graph.node_ids().filter(|id| !graph.node(*id).op.is_view()) {
        if !movable[id.index()] {
            broken = true;
            continue;
        }
        let device = placement.node(id).device;
        match runs.last_mut() {
            Some(run) if !broken && placement.node(run[0]).device == device => run.push(id),
            _ => runs.push(vec![id]),
        }
        broken = false;
    }
    runs
}

/// A run, its halves, their halves, and so on.
fn halve<'a>(run: &'a [NodeId], parts: &mut Vec<&'a [NodeId]>) {
    parts.push(run);
    if run.len() > 1 {
        let (left, right) = run.split_at(run.len() / 2);
        halve(left, parts);
        halve(right, parts);
    }
}

fn moved(graph: &Graph, from: &Placement, run: &[NodeId], device: DeviceId) -> Placement {
    let mut placement = from.clone();
    run.iter().for_each(|node| placement.nodes[node.index()].device = device);
    placement.settle(graph);
    placement
}

/// Whether the weights that a schedule keeps elsewhere are within the limits.
fn weights_fit(schedule: &Schedule, machine: &impl MachineFacts, options: &CostOptions) -> bool {
    machine.device_ids().all(|device| {
        let here = schedule.transfers.iter().filter(|transfer| transfer.resident && transfer.to == device);
        let bytes: u64 = here.map(|transfer| transfer.room).sum();
        bytes <= options.resident.get(&device).copied().unwrap_or(0)
    })
}
