use std::collections::HashMap;

use orlop_backend::{BufferType, Overwrite, Step, StepValue, Steps, Temporary, overwrites};
use orlop_graph::{Graph, Leaf, NodeId, Order, Origin, TensorDesc, TensorId, may_overwrite};

use crate::layouts::Layouts;
use crate::{ArenaId, ArenaInfo, Error, Flags, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo};

/// Steps as their memory is planned: which arena each uses, and where groups end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lowered<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) steps: &'a Steps,
    /// Arena and group of each step.
    pub(crate) at: &'a [(ArenaId, u32)],
}

/// Where values are placed.
pub(crate) trait Homes {
    /// The arenas there are.
    fn arenas(&self) -> Vec<ArenaInfo>;

    /// Bytes that a tensor takes in an arena, before rounding up.
    fn bytes(&self, arena: ArenaId, desc: &TensorDesc) -> u64;

    /// The arena that a leaf is placed in, `None` if it lies elsewhere.
    fn leaf(&self, id: TensorId, leaf: Leaf) -> Option<ArenaId>;
}

impl ArenaInfo {
    /// An arena of a buffer type.
    pub fn of(buffer_type: &dyn BufferType) -> ArenaInfo {
        ArenaInfo {
            name: buffer_type.name().to_owned(),
            alignment: buffer_type.alignment(),
            max_chunk: buffer_type.max_bytes(),
        }
    }
}

/// An order may have been made for another graph.
pub(crate) fn check_order(graph: &Graph, order: &Order) -> Result<(), Error> {
    let numbers = |group: &[NodeId]| -> Vec<i64> {
        group.iter().map(|id| id.index() as i64).chain(std::iter::once(-1)).collect()
    };
    let sequence: Vec<i64> = order.groups().flat_map(numbers).collect();
    Order::new(graph, &sequence)?;
    Ok(())
}

/// The plainest steps of a graph, without asking a device: one a node, views left out, in an order.
pub(crate) fn plain_steps(graph: &Graph, order: &Order) -> (Steps, Vec<u32>) {
    let mut steps = Vec::new();
    let mut groups = Vec::new();
    for (group, nodes) in order.groups().enumerate() {
        for id in nodes.iter().filter(|id| !graph.node(**id).op.is_view()) {
            steps.push(plain_step(graph, *id));
            groups.push(group as u32);
        }
    }
    (Steps { options: Default::default(), steps, temporaries: Vec::new() }, groups)
}

fn plain_step(graph: &Graph, id: NodeId) -> Step {
    let node = graph.node(id);
    Step {
        kernel: node.op.to_name(),
        nodes: vec![id],
        reads: node.inputs.iter().copied().map(StepValue::Tensor).collect(),
        writes: vec![StepValue::Tensor(node.output)],
        may_overwrite: overwrites(graph, id),
    }
}

/// The usage of lowered steps. Values are the graph's tensors, by id, and then the temporaries.
pub(crate) fn usage_of(lowered: Lowered<'_>, homes: &dyn Homes) -> Result<Usage, Error> {
    let Lowered { graph, steps, at } = lowered;
    check_steps(graph, steps)?;
    let mut usage = Usage::new(homes.arenas(), Unread::Dies);
    let mut layouts = Layouts::default();
    let arena_of = producers(graph, steps, at);
    let mut kept = vec![false; graph.tensors().len()];
    for id in graph.results() {
        kept[graph.tensor(id).storage.root.index()] = true;
    }
    for id in graph.tensor_ids() {
        let tensor = graph.tensor(id);
        let layout = layouts.key(&tensor.desc);
        let root = tensor.storage.root;
        let mut flags = Flags { output: kept[id.index()], ..Flags::default() };
        let mut arena = arena_of[root.index()];
        if let Origin::Leaf(leaf) = graph.tensor(root).origin {
            arena = homes.leaf(root, leaf);
            flags.external = arena.is_none();
            flags.output |= leaf == Leaf::Persistent;
            if let (Some(arena), true) = (arena, root == id) {
                usage.leaves.push((ValueId::new(id.index()), arena));
            }
        }
        let bytes = match arena {
            Some(arena) if root == id => homes.bytes(arena, &tensor.desc),
            _ => tensor.desc.bytes(),
        };
        let root = ValueId::new(root.index());
        usage.push_value(
            tensor.name.clone(),
            ValueInfo { bytes, root, offset: tensor.storage.offset, layout, flags },
        );
    }
    for (index, temporary) in steps.temporaries.iter().enumerate() {
        let root = ValueId::new(graph.tensors().len() + index);
        let layout = layouts.count() + index as u32;
        let info = ValueInfo { bytes: temporary.bytes, root, offset: 0, layout, flags: Flags::default() };
        usage.push_value(temporary.name.clone(), info);
    }
    push_steps(&mut usage, lowered);
    Ok(usage)
}

/// The arena of the step that writes each tensor.
fn producers(graph: &Graph, steps: &Steps, at: &[(ArenaId, u32)]) -> Vec<Option<ArenaId>> {
    let mut arenas = vec![None; graph.tensors().len()];
    for (step, (arena, _)) in steps.steps.iter().zip(at) {
        for write in &step.writes {
            if let StepValue::Tensor(id) = write {
                arenas[id.index()] = Some(*arena);
            }
        }
    }
    arenas
}

fn push_steps(usage: &mut Usage, Lowered { graph, steps, at }: Lowered<'_>) {
    let tensors = graph.tensors().len();
    let id = |value: StepValue| match value {
        StepValue::Tensor(id) => Some(ValueId::new(id.index())),
        StepValue::Temporary(index) => Some(ValueId::new(tensors + index)),
    };
    push_mapped(usage, steps, &|step| at[step], Held::default(), &id);
}

/// Values that are read from outside while steps run, and must keep their memory meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<'a> {
    /// Read until the first step begins: by other devices.
    pub to_first: &'a [ValueId],
    /// Read when the last step has ended: by an observer. In another order of steps, the one that writes such a value
    /// may come earlier.
    pub to_last: &'a [ValueId],
}

impl Usage {
    /// Adds the steps that a device made of a part of a graph, each a group of its own. `id` says which value of
    /// this usage each of theirs is, `None` for what lies elsewhere; `held` are values that are read beside the steps.
    ///
    /// # Errors
    /// [`Error::BadLowering`] if the steps refer to something that is not there.
    pub fn push_lowered(
        &mut self,
        graph: &Graph,
        steps: &Steps,
        arena: ArenaId,
        held: Held<'_>,
        id: &dyn Fn(StepValue) -> Option<ValueId>,
    ) -> Result<(), Error> {
        check_steps(graph, steps)?;
        let first = self.step_count();
        push_mapped(self, steps, &|step| (arena, (first + step) as u32), held, id);
        Ok(())
    }
}

fn push_mapped(
    usage: &mut Usage,
    steps: &Steps,
    at: &dyn Fn(usize) -> (ArenaId, u32),
    held: Held<'_>,
    id: &dyn Fn(StepValue) -> Option<ValueId>,
) {
    // A temporary is there from the first step that uses it to the last, whether they read or write it.
    let mut begins: HashMap<usize, Vec<StepValue>> = HashMap::new();
    let mut ends: HashMap<usize, Vec<StepValue>> = HashMap::new();
    for (number, temporary) in steps.temporaries.iter().enumerate() {
        begins.entry(temporary.first).or_default().push(StepValue::Temporary(number));
        ends.entry(temporary.last).or_default().push(StepValue::Temporary(number));
    }
    let more = |table: &HashMap<usize, Vec<StepValue>>, step| table.get(&step).cloned().unwrap_or_default();
    let (mut reads, mut writes) = (Mapped::default(), Mapped::default());
    let mut overwrites: Vec<OverwritePair> = Vec::new();
    for (index, step) in steps.steps.iter().enumerate() {
        let (arena, group) = at(index);
        reads.fill(&step.reads, &more(&ends, index), id);
        writes.fill(&step.writes, &more(&begins, index), id);
        if index == 0 {
            reads.ids.extend_from_slice(held.to_first);
        }
        if index + 1 == steps.steps.len() {
            // What the last step writes stays to its end without being read.
            let written = |root: ValueId| writes.ids.iter().any(|id| usage.value(*id).root == root);
            reads.ids.extend(held.to_last.iter().filter(|id| !written(usage.value(**id).root)));
        }
        let pair = |overwrite: &Overwrite| {
            Some(OverwritePair { write: writes.at[overwrite.write]?, read: reads.at[overwrite.read]? })
        };
        overwrites.clear();
        overwrites.extend(step.may_overwrite.iter().filter_map(pair));
        let (reads, writes, overwrites) = (&reads.ids, &writes.ids, &overwrites);
        usage.push_step(StepView { arena, group, reads, writes, overwrites });
    }
}

/// A step's values that lie here, and where each of its list went.
#[derive(Default)]
struct Mapped {
    ids: Vec<ValueId>,
    at: Vec<Option<u32>>,
}

impl Mapped {
    /// All of `values`, and those of `more` that are not among them.
    fn fill(&mut self, values: &[StepValue], more: &[StepValue], id: &dyn Fn(StepValue) -> Option<ValueId>) {
        self.ids.clear();
        self.at.clear();
        for value in values {
            let id = id(*value);
            self.at.push(id.map(|_| self.ids.len() as u32));
            self.ids.extend(id);
        }
        self.ids.extend(more.iter().filter(|value| !values.contains(value)).filter_map(|value| id(*value)));
    }
}

/// Steps come from a device: whatever they refer to must be there.
fn check_steps(graph: &Graph, steps: &Steps) -> Result<(), Error> {
    let bad = |what: String| Err(Error::BadLowering { what });
    for (index, step) in steps.steps.iter().enumerate() {
        for value in step.reads.iter().chain(&step.writes) {
            let known = match value {
                StepValue::Tensor(id) => graph.get(*id).is_some(),
                StepValue::Temporary(number) => *number < steps.temporaries.len(),
            };
            if !known {
                return bad(format!("step {index} with {value:?}, which is not there"));
            }
        }
    }
    for (index, step) in steps.steps.iter().enumerate() {
        for pair in &step.may_overwrite {
            if pair.write >= step.writes.len() || pair.read >= step.reads.len() {
                return bad(format!("step {index}, which offers to overwrite what it does not have"));
            }
        }
        // Of a step that is one node, the graph knows what it may overwrite at most.
        if let [node] = step.nodes[..]
            && let Some(node) = graph.nodes().get(node.index())
        {
            let forbidden = |pair: &Overwrite| {
                step.writes[pair.write] == StepValue::Tensor(node.output)
                    && matches!(step.reads[pair.read], StepValue::Tensor(id)
                        if !node.inputs.iter().enumerate().any(|(slot, input)| *input == id && may_overwrite(&node.op, slot)))
            };
            if step.may_overwrite.iter().any(forbidden) {
                return bad(format!("step {index}, which offers to overwrite what {} may not", node.op));
            }
        }
    }
    for temporary in &steps.temporaries {
        if temporary.first > temporary.last || temporary.last >= steps.steps.len() {
            let Temporary { name, first, last, .. } = temporary;
            return bad(format!("`{name}` from step {first} to {last} of {}", steps.steps.len()));
        }
    }
    Ok(())
}
