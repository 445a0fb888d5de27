//! How long a planned graph will take.

use orlop_backend::{Step, StepValue, Steps};
use orlop_graph::{Graph, NodeId, TensorId};

use crate::schedule::estimate::{makespan, slower_end};
use crate::speeds::{Bottleneck, NodeWork, is_heavy};
use crate::{DeviceId, DeviceSpeeds, ExpectedData, Machine, Planned, SplitId, TransferId};

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

/// What a run does for a part of a graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expense {
    /// A step that ends with a node.
    Step {
        /// The node.
        node: NodeId,
        /// Seconds of it.
        seconds: f64,
    },
    /// A transfer of a weight, which a device makes while it computes.
    Weight {
        /// The weight.
        leaf: TensorId,
        /// Seconds of it.
        seconds: f64,
    },
}

impl Planned {
    /// How long a run is expected to take by the machine's speeds, with such data.
    pub fn predict(&self, machine: &Machine, expected: &ExpectedData) -> Prediction {
        let mut spent: Vec<(Limit, f64)> = Vec::new();
        let mut spend = |limit: Limit, seconds: f64| match spent.iter_mut().find(|(known, _)| *known == limit)
        {
            Some((_, sum)) => *sum += seconds,
            None => spent.push((limit, seconds)),
        };
        let mut transfers = Vec::new();
        let transfer = |split: SplitId, transfer: TransferId| {
            let (device, seconds) = self.transfer_seconds(machine, split, transfer);
            transfers.push((Limit::Link(device), seconds));
            seconds
        };
        let compute = |split: SplitId| {
            let device = self.schedule[split].device;
            let speeds = machine.speeds(device);
            let mut sum = 0.0;
            let steps = &self.steps[split.index()];
            for step in &steps.steps {
                spend(Limit::Steps(device), speeds.launch_seconds);
                sum += speeds.launch_seconds;
                for work in step_work(&self.graph, speeds, steps, step, expected) {
                    let limit = match work.bottleneck {
                        Bottleneck::Memory => Limit::Memory(device),
                        Bottleneck::Arithmetic => Limit::Arithmetic(device),
                    };
                    spend(limit, work.seconds);
                    sum += work.seconds;
                }
            }
            sum
        };
        let seconds = makespan(&self.schedule, machine.devices().len(), transfer, compute);
        transfers.into_iter().for_each(|(limit, seconds)| spend(limit, seconds));
        let most = spent.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        let limited_by = most.map_or(Limit::Steps(DeviceId::default()), |(limit, _)| limit);
        Prediction { seconds, limited_by }
    }

    /// What a run spends on steps and on transfers of weights, in order; other transfers are left out.
    pub fn expenses(&self, machine: &Machine, expected: &ExpectedData) -> Vec<Expense> {
        let mut expenses = Vec::new();
        for (id, split) in self.schedule.ids().zip(&self.schedule.splits) {
            let speeds = machine.speeds(split.device);
            for number in &split.transfers {
                let transfer = &self.schedule[*number];
                if transfer.constant && !transfer.resident {
                    let (_, seconds) = self.transfer_seconds(machine, id, *number);
                    expenses.push(Expense::Weight { leaf: transfer.root, seconds });
                }
            }
            let steps = &self.steps[id.index()];
            for step in &steps.steps {
                let Some(node) = step.nodes.iter().max().copied() else { continue };
                let works = step_work(&self.graph, speeds, steps, step, expected);
                let seconds = speeds.launch_seconds + works.map(|work| work.seconds).sum::<f64>();
                expenses.push(Expense::Step { node, seconds });
            }
        }
        expenses
    }

    /// Seconds of a transfer that a split makes, and the device at the slower end.
    fn transfer_seconds(&self, machine: &Machine, split: SplitId, transfer: TransferId) -> (DeviceId, f64) {
        let (to, transfer) = (self.schedule[split].device, &self.schedule[transfer]);
        slower_end(machine, self.placement.home(&self.graph, transfer.root), to, transfer.bytes())
    }
}

/// What the nodes of a step take together: its products and attention, or one pass where there are none. A step of no node
/// brings activations, which were just computed, into another form.
fn step_work<'a>(
    graph: &'a Graph,
    speeds: &'a DeviceSpeeds,
    steps: &'a Steps,
    step: &'a Step,
    expected: &'a ExpectedData,
) -> impl Iterator<Item = NodeWork> + 'a {
    let nodes = &step.nodes;
    let bytes = |value: &StepValue| match value {
        StepValue::Tensor(id) => graph.tensor(*id).desc.bytes(),
        StepValue::Temporary(number) => steps.temporaries.get(*number).map_or(0, |temporary| temporary.bytes),
    };
    let prepared = nodes.is_empty().then(|| {
        let bytes = step.reads.iter().chain(&step.writes).map(bytes).sum();
        NodeWork { seconds: speeds.reread_seconds(bytes), bottleneck: Bottleneck::Memory }
    });
    let work = move |node: &NodeId| speeds.work(graph, *node, expected);
    let heavy = nodes.iter().any(|node| is_heavy(graph, *node));
    let pass = nodes.iter().map(work).max_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let products = nodes.iter().filter(move |node| heavy && is_heavy(graph, **node)).map(work);
    products.chain(pass.filter(|_| !heavy)).chain(prepared)
}
