//! How long a schedule would take, by the speeds of devices.

use orlop_graph::{Graph, Origin, TensorId};

use crate::{Command, DeviceId, Error, MachineFacts, Schedule, Split, SplitId, Transfer, TransferId};

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

impl Schedule {
    /// The device that computes a storage; `None` for leaves.
    fn computed_on(&self, graph: &Graph, root: TensorId) -> Option<DeviceId> {
        match graph.tensor(root).origin {
            Origin::Node(node) => {
                self.split_of.get(node.index()).copied().flatten().map(|split| self[split].device)
            }
            Origin::Leaf(_) => None,
        }
    }
}

/// That everything a split speaks of is there.
fn check_split(graph: &Graph, schedule: &Schedule, id: SplitId, split: &Split) -> Result<(), &'static str> {
    let sound = |transfer: &Transfer| {
        transfer.range.start <= transfer.range.end
            && transfer.after <= split.waits.len()
            && transfer.root.index() < graph.tensors().len()
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
        let (transfer, to) = (&schedule[transfer], schedule[split].device);
        slower_end(machine, schedule.computed_on(graph, transfer.root), to, transfer.bytes()).1
    };
    let compute = |split: SplitId| {
        let split = &schedule[split];
        let speeds = machine.speeds(split.device);
        split.nodes.iter().map(|node| speeds.node_seconds(graph, *node)).sum()
    };
    makespan(schedule, machine.device_count(), transfer, compute)
}

/// Seconds to bring bytes from a device, or the host, to another one, and the device at the slower end.
pub(crate) fn slower_end(
    machine: &impl MachineFacts,
    from: Option<DeviceId>,
    to: DeviceId,
    bytes: u64,
) -> (DeviceId, f64) {
    let there = machine.speeds(to).transfer_seconds(bytes);
    let back = from.filter(|from| *from != to).map(|from| (from, machine.speeds(from).return_seconds(bytes)));
    back.filter(|(_, back)| *back > there).unwrap_or((to, there))
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
