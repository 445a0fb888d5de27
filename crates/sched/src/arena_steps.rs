use orlop_graph::NodeId;

use crate::memory::Domains;
use crate::{DeviceId, Machine, Planned};

/// A step of an arena's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaStep {
    /// Where it stands among the steps of all devices, in the order in which they are given out.
    pub at: usize,
    /// The split it belongs to.
    pub split: usize,
    /// Which of the split's lowered steps; `None` for a copy.
    pub step: Option<usize>,
    /// The copy that it makes, by position in [`crate::Schedule::transfers`].
    pub copy: Option<usize>,
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
    /// A copy of something that lies elsewhere, by position in [`crate::Schedule::transfers`].
    Copy(usize),
    /// A step's own memory.
    Temporary {
        /// The split that it belongs to.
        split: usize,
    },
}

impl Planned {
    /// How many steps all devices have together, copies included.
    pub fn step_count(&self) -> usize {
        let splits = self.schedule.splits.iter().zip(&self.steps);
        splits.map(|(part, steps)| self.made_copies(&part.copies).count() + steps.steps.len()).sum()
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
        for (split, (part, steps)) in self.schedule.splits.iter().zip(&self.steps).enumerate() {
            let mine = domains.of(part.device) == domain;
            let copies = self.made_copies(&part.copies).map(|copy| ArenaStep {
                at: 0,
                split,
                step: None,
                copy: Some(copy),
                nodes: Vec::new(),
            });
            let lowered = steps.steps.iter().enumerate().map(|(number, step)| ArenaStep {
                at: 0,
                split,
                step: Some(number),
                copy: None,
                nodes: step.nodes.clone(),
            });
            for step in copies.chain(lowered) {
                if mine {
                    found.push(ArenaStep { at, ..step });
                }
                at += 1;
            }
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

    /// Copies that a run makes.
    fn made_copies<'a>(&'a self, copies: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
        copies.iter().copied().filter(|copy| !self.schedule.transfers[*copy].kept)
    }
}
