//! The steps of one split by themselves, and a better order of them.

use std::collections::{HashMap, HashSet};

use orlop_backend::{StepValue, Steps};
use orlop_graph::{Graph, TensorId};

use super::{Held, Home, UsageBuilder};
use crate::{ArenaId, ArenaInfo, Error, Flags, Usage, ValueId};

/// Steps that a device made of a part of a graph, and what is known of the memory around them.
pub struct StepSequence<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The steps.
    pub steps: &'a Steps,
    /// Where results go.
    pub arena: ArenaInfo,
    /// Bytes of a root that lies in the arena; `None` if it lies elsewhere.
    pub bytes: &'a dyn Fn(TensorId) -> Option<u64>,
    /// Whether a root is needed after these steps.
    pub stays: &'a dyn Fn(TensorId) -> bool,
}

impl StepSequence<'_> {
    /// The steps in an order that needs less memory, as [`crate::reorder`] finds it; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::BadLowering`] if the steps refer to something that is not there.
    pub fn reordered(&self, effort: u64) -> Result<Option<Steps>, Error> {
        let order = crate::reorder(&self.usage()?, effort);
        Ok((!order.is_sorted()).then(|| self.steps.in_order(&order)))
    }

    /// Memory elsewhere is in it, too: steps that touch the same bytes there keep their order.
    fn usage(&self) -> Result<Usage, Error> {
        let StepSequence { graph, steps, .. } = *self;
        let arena = ArenaId::new(0);
        let written: HashSet<StepValue> =
            steps.steps.iter().flat_map(|step| step.writes.iter().copied()).collect();
        let home = |root: TensorId| {
            let room = (self.bytes)(root);
            let flags = Flags { output: (self.stays)(root), external: room.is_none(), ..Flags::default() };
            let bytes = room.unwrap_or(graph.tensor(root).desc.bytes());
            // What no step writes was there before.
            Home { usage: 0, arena, bytes, flags, leaf: !written.contains(&StepValue::Tensor(root)) }
        };
        let mut builder = UsageBuilder::new(graph, [vec![self.arena.clone()]]);
        let mut values: HashMap<TensorId, ValueId> = HashMap::new();
        let mut roots: HashMap<TensorId, (ValueId, Home)> = HashMap::new();
        for value in steps.steps.iter().flat_map(|step| step.reads.iter().chain(&step.writes)) {
            let StepValue::Tensor(id) = value else { continue };
            if values.contains_key(id) {
                continue;
            }
            let root = graph.get(*id).map(|tensor| tensor.storage.root);
            let root =
                root.ok_or_else(|| Error::BadLowering { what: format!("{id}, which is not there") })?;
            let (of, home) = *roots.entry(root).or_insert_with(|| {
                let home = home(root);
                (builder.add_tensor(root, &home, None), home)
            });
            let own = if *id == root { of } else { builder.add_tensor(*id, &home, Some(of)) };
            values.insert(*id, own);
        }
        builder.add_steps(0, steps, None, Held::default(), |id| values.get(&id).copied())?;
        Ok(builder.finish().swap_remove(0))
    }
}
