use std::collections::{HashMap, HashSet};

use orlop_backend::{StepValue, Steps};
use orlop_graph::{Graph, TensorId};

use crate::layouts::Layouts;
use crate::{ArenaId, ArenaInfo, Error, Flags, Held, Unread, Usage, ValueId, ValueInfo};

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
        let order = super::reorder(&self.usage()?, effort);
        Ok((!order.is_sorted()).then(|| self.steps.in_order(&order)))
    }

    /// Memory elsewhere is in it, too: whoever touches the same bytes there keeps their order.
    fn usage(&self) -> Result<Usage, Error> {
        let StepSequence { graph, steps, .. } = *self;
        let mut usage = Usage::new(vec![self.arena.clone()], Unread::Dies);
        let mut layouts = Layouts::default();
        let mut values: HashMap<TensorId, ValueId> = HashMap::new();
        let mut push = |usage: &mut Usage, id: TensorId, root: Option<ValueId>| {
            let tensor = graph.tensor(id);
            let own = ValueId::new(usage.values().len());
            let layout = layouts.key(&tensor.desc);
            let room = (self.bytes)(tensor.storage.root);
            let flags = Flags {
                output: (self.stays)(tensor.storage.root),
                external: room.is_none(),
                ..Flags::default()
            };
            let bytes = room.filter(|_| root.is_none()).unwrap_or(tensor.desc.bytes());
            let (root, offset) = (root.unwrap_or(own), tensor.storage.offset);
            usage.push_value(tensor.name.clone(), ValueInfo { bytes, root, offset, layout, flags })
        };
        let touched = || {
            let all = steps.steps.iter().flat_map(|step| step.reads.iter().chain(&step.writes));
            all.filter_map(|value| match value {
                StepValue::Tensor(id) => Some(*id),
                StepValue::Temporary(_) => None,
            })
        };
        for id in touched() {
            let root = graph.get(id).map(|tensor| tensor.storage.root);
            let root =
                root.ok_or_else(|| Error::BadLowering { what: format!("{id}, which is not there") })?;
            let of = *values.entry(root).or_insert_with(|| push(&mut usage, root, None));
            values.entry(id).or_insert_with(|| push(&mut usage, id, Some(of)));
        }
        let arena = ArenaId::new(0);
        let written: HashSet<StepValue> =
            steps.steps.iter().flat_map(|step| step.writes.iter().copied()).collect();
        let made_before = |(id, value): (&TensorId, &ValueId)| {
            let is_root = usage.value(*value).root == *value;
            (is_root && !written.contains(&StepValue::Tensor(*id))).then_some((*value, arena))
        };
        let mut leaves: Vec<(ValueId, ArenaId)> = values.iter().filter_map(made_before).collect();
        leaves.sort_unstable();
        usage.leaves = leaves;
        let first = usage.values().len();
        for (number, temporary) in steps.temporaries.iter().enumerate() {
            let root = ValueId::new(first + number);
            let layout = layouts.count() + number as u32;
            let info = ValueInfo { bytes: temporary.bytes, root, offset: 0, layout, flags: Flags::default() };
            usage.push_value(temporary.name.clone(), info);
        }
        let id = |value: StepValue| match value {
            StepValue::Tensor(id) => values.get(&id).copied(),
            StepValue::Temporary(number) => Some(ValueId::new(first + number)),
        };
        usage.push_lowered(graph, steps, arena, Held::default(), &id)?;
        Ok(usage)
    }
}
