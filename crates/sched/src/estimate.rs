use orlop_backend::DeviceFacts;
use orlop_graph::{Graph, NodeId};

use crate::{Error, Machine, Schedule, Split, Transfer};

/// Seconds that a schedule would take by what devices say of themselves: time for every node and for starting it, and
/// for bringing bytes over. Splits of different devices overlap where they do not wait for each other.
///
/// # Errors
/// [`Error::UnknownDevice`] and [`Error::BadSchedule`] for a schedule that is not one of this graph on this machine.
pub fn estimate(graph: &Graph, machine: &Machine, schedule: &Schedule) -> Result<f64, Error> {
    for (index, part) in schedule.splits.iter().enumerate() {
        machine.check(part.device)?;
        check_split(graph, schedule, index, part)
            .map_err(|what| Error::BadSchedule { split: index, what })?;
    }
    Ok(seconds(graph, machine, schedule))
}

/// That everything a split speaks of is there.
fn check_split(graph: &Graph, schedule: &Schedule, index: usize, part: &Split) -> Result<(), &'static str> {
    let sound = |copy: &Transfer| copy.range.start <= copy.range.end && copy.after <= part.waits.len();
    if !part.copies.iter().all(|copy| schedule.transfers.get(*copy).is_some_and(sound)) {
        return Err("makes copies that are not there, or not its own");
    }
    if !part.waits.iter().all(|earlier| *earlier < index) {
        return Err("waits for splits that do not come before it");
    }
    if !part.nodes.iter().all(|node| node.index() < graph.nodes().len()) {
        return Err("has nodes that the graph has not");
    }
    Ok(())
}

/// As [`estimate`], of a schedule that was made for this graph and machine.
pub(crate) fn seconds(graph: &Graph, machine: &Machine, schedule: &Schedule) -> f64 {
    let mut free_at = vec![0.0f64; machine.devices().len()];
    let mut ends: Vec<f64> = Vec::with_capacity(schedule.splits.len());
    for part in &schedule.splits {
        let facts = machine.facts(part.device);
        let mut now = free_at[part.device.index()];
        let mut waited = 0;
        for copy in part.copies.iter().map(|copy| &schedule.transfers[*copy]).filter(|copy| !copy.kept) {
            let until = copy.after.max(waited);
            now = part.waits[waited..until].iter().map(|earlier| ends[*earlier]).fold(now, f64::max);
            waited = until;
            let bytes = (copy.range.end - copy.range.start) as f64;
            now += facts.host_link.latency_seconds + bytes / facts.host_link.bytes_per_second.max(1.0);
        }
        now = part.waits[waited..].iter().map(|earlier| ends[*earlier]).fold(now, f64::max);
        now += part.nodes.iter().map(|node| node_seconds(graph, facts, *node)).sum::<f64>();
        free_at[part.device.index()] = now;
        ends.push(now);
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
