//! How long a schedule would take, by the speeds of devices.

use orlop_graph::Graph;

use crate::{Command, Error, MachineFacts, Schedule, Split, SplitId, Transfer, TransferId};

/// Seconds that a schedule would take by the speeds of devices: time for every node and for starting it, and
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
    let sound = |transfer: &Transfer| {
        transfer.range.start <= transfer.range.end && transfer.after <= split.waits.len()
    };
    if !split.transfers.iter().all(|transfer| schedule.transfers.get(transfer.index()).is_some_and(sound)) {
        return Err("makes transfers that are not there, or not its own");
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
    let transfer = |split: SplitId, transfer: TransferId| {
        machine.speeds(schedule[split].device).transfer_seconds(schedule[transfer].bytes())
    };
    let compute = |split: SplitId| {
        let split = &schedule[split];
        let speeds = machine.speeds(split.device);
        split.nodes.iter().map(|node| speeds.node_seconds(graph, *node)).sum()
    };
    makespan(schedule, machine.device_count(), transfer, compute)
}

/// Seconds until the last split has ended, if transfers and nodes take these times. Splits of different devices
/// overlap where they do not wait for each other.
pub(crate) fn makespan(
    schedule: &Schedule,
    devices: usize,
    mut transfer_seconds: impl FnMut(SplitId, TransferId) -> f64,
    mut compute_seconds: impl FnMut(SplitId) -> f64,
) -> f64 {
    let mut free_at = vec![0.0f64; devices];
    let mut ends = vec![0.0f64; schedule.splits.len()];
    for id in schedule.ids() {
        let now = &mut free_at[schedule[id].device.index()];
        for command in schedule.commands_of(id) {
            match command {
                Command::Wait { on, .. } => *now = now.max(ends[on.index()]),
                Command::Transfer { transfer, .. } => *now += transfer_seconds(id, transfer),
                Command::Compute { .. } => *now += compute_seconds(id),
                Command::Record { .. } => ends[id.index()] = *now,
            }
        }
    }
    ends.into_iter().fold(0.0, f64::max)
}
