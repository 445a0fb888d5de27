//! How long a planned graph will take.

use orlop_graph::{Graph, NodeId};

use crate::schedule::estimate::makespan;
use crate::speeds::{Bottleneck, NodeWork, is_heavy};
use crate::{DeviceId, DeviceSpeeds, Machine, MachineFacts, Planned, SplitId, TransferId};

/// How long a run is expected to take, and what limits it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds of one run.
    pub seconds: f64,
    /// What most of the work waits for.
    pub limited_by: Limit,
}

/// What a run's speed is limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Reading a device's memory.
    Memory(DeviceId),
    /// A device's arithmetic.
    Arithmetic(DeviceId),
    /// Starting steps on a device.
    Steps(DeviceId),
    /// Transfers to a device, or from it.
    Link(DeviceId),
    /// Reading weights from the model's file.
    File,
}

impl Planned {
    /// How long a run is expected to take by the machine's speeds, if attention sees `seen` rows, or all there are.
    pub fn predict(&self, machine: &Machine, seen: Option<u64>) -> Prediction {
        let mut spent: Vec<(Limit, f64)> = Vec::new();
        let mut spend = |limit: Limit, seconds: f64| match spent.iter_mut().find(|(known, _)| *known == limit)
        {
            Some((_, sum)) => *sum += seconds,
            None => spent.push((limit, seconds)),
        };
        let mut copied = Vec::new();
        let copy = |split: SplitId, transfer: TransferId| {
            let (to, bytes) = (self.schedule[split].device, self.schedule[transfer].bytes());
            let there = machine.speeds(to).transfer_seconds(bytes);
            let root = self.schedule[transfer].root;
            let from = self.placement.home(&self.graph, root).filter(|from| *from != to);
            // Both ends take part, and the slower one counts.
            let back = from.map(|from| (from, machine.speeds(from).return_seconds(bytes)));
            let (slower, seconds) = back.filter(|(_, back)| *back > there).unwrap_or((to, there));
            copied.push((Limit::Link(slower), seconds));
            seconds
        };
        let compute = |split: SplitId| {
            let device = self.schedule[split].device;
            let speeds = machine.speeds(device);
            let steps = &self.steps[split.index()].steps;
            let mut seconds = steps.len() as f64 * speeds.launch_seconds;
            spend(Limit::Steps(device), seconds);
            for step in steps {
                for work in step_work(&self.graph, speeds, &step.nodes, seen) {
                    let limit = match work.bottleneck {
                        Bottleneck::Memory => Limit::Memory(device),
                        Bottleneck::Arithmetic => Limit::Arithmetic(device),
                    };
                    spend(limit, work.seconds);
                    seconds += work.seconds;
                }
            }
            seconds
        };
        let seconds = makespan(&self.schedule, machine.device_count(), copy, compute);
        copied.into_iter().for_each(|(limit, seconds)| spend(limit, seconds));
        let most = spent.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        let limited_by = most.map_or(Limit::Steps(DeviceId::default()), |(limit, _)| limit);
        Prediction { seconds, limited_by }
    }
}

/// What the nodes of a step take together: its products and attention, or one pass where there are none.
fn step_work<'a>(
    graph: &'a Graph,
    speeds: &'a DeviceSpeeds,
    nodes: &'a [NodeId],
    seen: Option<u64>,
) -> impl Iterator<Item = NodeWork> + 'a {
    let work = move |node: &NodeId| speeds.work(graph, *node, seen);
    let heavy = nodes.iter().any(|node| is_heavy(graph, *node));
    let pass = nodes.iter().map(work).max_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let products = nodes.iter().filter(move |node| heavy && is_heavy(graph, **node)).map(work);
    products.chain(pass.filter(|_| !heavy))
}
