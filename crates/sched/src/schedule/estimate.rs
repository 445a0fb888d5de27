//! How long a schedule would take, by what devices say of themselves.

use orlop_backend::DeviceFacts;
use orlop_graph::{Graph, NodeId};

use crate::{Command, Error, MachineFacts, Schedule, Split, SplitId, Transfer};

/// Seconds that a schedule would take by what devices say of themselves: time for every node and for starting it, and
/// for bringing bytes over. Splits of different devices overlap where they do not wait for each other.
///
/// # Errors
/// [`Error::UnknownDevice`] and [`Error::BadSchedule`] for a schedule that is not one of this graph on this machine.
pub fn estimate(graph: &Graph, machine: &impl MachineFacts, schedule: &Schedule) -> Result<f64, Error> {
    for (id, split) in schedule.ids().zip(&schedule.splits) {
        machine.check_device(split.device)?;
        check_split(graph, schedule, id, split).map_err(|what| Error::BadSchedule { split: id, what })?;
    }
    Ok(seconds(graph, machine, schedule))
}

/// That everything a split speaks of is there.
fn check_split(graph: &Graph, schedule: &Schedule, id: SplitId, split: &Split) -> Result<(), &'static str> {
    let sound = |copy: &Transfer| copy.range.start <= copy.range.end && copy.after <= split.waits.len();
    if !split.copies.iter().all(|copy| schedule.transfers.get(copy.index()).is_some_and(sound)) {
        return Err("makes copies that are not there, or not its own");
    }
    if !split.waits.iter().all(|earlier| *earlier < id) {
        return Err("waits for splits that do not come before it");
    }
    if !split.nodes.iter().all(|node| node.index() < graph.nodes().len()) {
        return Err("has nodes that the graph has not");
    }
    Ok(())
}

/// As [`estimate`], of a schedule that was made for this graph and machine.
pub(crate) fn seconds(graph: &Graph, machine: &impl MachineFacts, schedule: &Schedule) -> f64 {
    let mut free_at = vec![0.0f64; machine.device_count()];
    let mut ends = vec![0.0f64; schedule.splits.len()];
    for id in schedule.ids() {
        let split = &schedule[id];
        let facts = machine.facts(split.device);
        let now = &mut free_at[split.device.index()];
        for command in schedule.commands_of(id) {
            match command {
                Command::Wait { on, .. } => *now = now.max(ends[on.index()]),
                Command::Copy { transfer, .. } => {
                    let bytes = schedule[transfer].bytes() as f64;
                    let link = &facts.host_link;
                    *now += link.latency_seconds + bytes / link.bytes_per_second.max(1.0);
                }
                Command::Compute { .. } => {
                    *now += split.nodes.iter().map(|node| node_seconds(graph, facts, *node)).sum::<f64>();
                }
                Command::Record { .. } => ends[id.index()] = *now,
            }
        }
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// Seconds of one node on a device of these facts: limited by arithmetic or by memory, and the start.
pub fn node_seconds(graph: &Graph, facts: &DeviceFacts, node: NodeId) -> f64 {
    let data = graph.node(node);
    let bytes: u64 = data.inputs.iter().chain([&data.output]).map(|id| graph.tensor(*id).desc.bytes()).sum();
    let arithmetic = graph.operations(node) / facts.flops.max(1.0);
    let traffic = bytes as f64 / facts.bytes_per_second.max(1.0);
    facts.launch_seconds + arithmetic.max(traffic)
}
