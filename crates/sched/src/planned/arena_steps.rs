//! The steps and values of an arena's plan, as parts of the graph.

use std::ops::Range;

use orlop_graph::NodeId;

use crate::planned::memory::Domains;
use crate::{Command, DeviceId, Machine, Planned, SplitId, TransferId};

/// A step of an arena's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaStep {
    /// Where it stands among the steps of all devices, in the order in which they are given out.
    pub at: usize,
    /// The split it belongs to.
    pub split: SplitId,
    /// Which of the split's lowered steps; `None` for a transfer.
    pub step: Option<usize>,
    /// The transfer that it makes.
    pub transfer: Option<TransferId>,
    /// The nodes that it computes.
    pub nodes: Vec<NodeId>,
}

/// What a value of an arena's plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueOrigin {
    /// A tensor of the graph.
    Tensor {
        /// By position.
        index: usize,
    },
    /// A transfer of something that lies elsewhere.
    Transfer(TransferId),
    /// A step's own memory.
    Temporary {
        /// The split that it belongs to.
        split: SplitId,
    },
}

impl Planned {
    /// How many steps all devices have together, transfers included.
    pub fn step_count(&self) -> usize {
        self.schedule.commands().map(|command| self.steps_of(command).len()).sum()
    }

    /// The steps of the plan of a device's arena, in its order.
    ///
    /// # Panics
    /// If the device is another machine's and out of range here.
    pub fn arena_steps(&self, machine: &Machine, device: DeviceId) -> Vec<ArenaStep> {
        let domains = Domains::new(machine);
        let domain = domains.of(device);
        let mut found = Vec::new();
        let mut at = 0;
        for command in self.schedule.commands() {
            let count = self.steps_of(command).len();
            match command {
                Command::Transfer { split, transfer }
                    if domains.of(self.schedule[split].device) == domain =>
                {
                    found.push(ArenaStep {
                        at,
                        split,
                        step: None,
                        transfer: Some(transfer),
                        nodes: Vec::new(),
                    });
                }
                Command::Compute { split } if domains.of(self.schedule[split].device) == domain => {
                    let steps = self.steps[split.index()].steps.iter().enumerate();
                    found.extend(steps.map(|(number, step)| ArenaStep {
                        at: at + number,
                        split,
                        step: Some(number),
                        transfer: None,
                        nodes: step.nodes.clone(),
                    }));
                }
                _ => {}
            }
            at += count;
        }
        found
    }

    /// What each value of the plan of a device's arena is.
    ///
    /// # Panics
    /// As [`Planned::arena_steps`].
    pub fn origins(&self, machine: &Machine, device: DeviceId) -> Vec<Option<ValueOrigin>> {
        self.memory.origins(Domains::new(machine).of(device), &self.steps)
    }

    /// The steps that a command is in the plans.
    fn steps_of(&self, command: Command) -> Range<usize> {
        match command {
            Command::Transfer { .. } => 0..1,
            Command::Compute { split } => 0..self.steps[split.index()].steps.len(),
            Command::Wait { .. } | Command::Record { .. } => 0..0,
        }
    }
}
