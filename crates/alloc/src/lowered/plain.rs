//! The usage of a whole graph without a device: one step a node.

use orlop_backend::{Step, StepValue, Steps};
use orlop_graph::{Graph, Leaf, NodeId, Order, Origin, TensorDesc, TensorId};

use super::{Held, Home, UsageBuilder};
use crate::{ArenaId, ArenaInfo, Error, Flags, Usage, ValueId};

/// Where the values of a graph are placed.
pub(crate) trait Homes {
    /// The arenas there are.
    fn arenas(&self) -> Vec<ArenaInfo>;

    /// Bytes that a tensor takes in an arena, before rounding up.
    fn bytes(&self, arena: ArenaId, desc: &TensorDesc) -> u64;

    /// The arena that a leaf is placed in, `None` if it lies elsewhere.
    fn leaf(&self, id: TensorId, leaf: Leaf) -> Option<ArenaId>;

    /// The arena that a node's result is placed in.
    fn node(&self, node: NodeId) -> ArenaId;
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

/// The usage of a graph in an order: one step a node, views left out. Values are the graph's tensors, by id; those that
/// lie elsewhere are external.
pub(crate) fn usage_of(graph: &Graph, order: &Order, homes: &dyn Homes) -> Result<Usage, Error> {
    let mut steps = Vec::with_capacity(graph.nodes().len());
    let mut at = Vec::with_capacity(graph.nodes().len());
    for (group, nodes) in order.groups().enumerate() {
        for id in nodes.iter().filter(|id| !graph.node(**id).op.is_view()) {
            steps.push(Step::plain(graph, *id));
            at.push((homes.node(*id), group as u32));
        }
    }
    let steps = Steps { options: Default::default(), steps, temporaries: Vec::new() };
    let mut written = vec![None; graph.tensors().len()];
    for (step, (arena, _)) in steps.steps.iter().zip(&at) {
        for write in &step.writes {
            if let StepValue::Tensor(id) = write {
                written[id.index()] = Some(*arena);
            }
        }
    }
    let mut kept = vec![false; graph.tensors().len()];
    for id in graph.results() {
        kept[graph.tensor(id).storage.root.index()] = true;
    }
    let home = |root: TensorId| {
        let tensor = graph.tensor(root);
        let mut flags = Flags { output: kept[root.index()], ..Flags::default() };
        let (arena, leaf) = match tensor.origin {
            Origin::Node(_) => (written[root.index()], false),
            Origin::Leaf(leaf) => {
                let arena = homes.leaf(root, leaf);
                flags.external = arena.is_none();
                flags.output |= leaf == Leaf::Persistent;
                (arena, arena.is_some())
            }
        };
        let bytes = arena.map_or(tensor.desc.bytes(), |arena| homes.bytes(arena, &tensor.desc));
        Home { usage: 0, arena: arena.unwrap_or(ArenaId::new(0)), bytes, flags, leaf }
    };
    let mut builder = UsageBuilder::new(graph, [homes.arenas()]);
    builder.reserve_tensors(0);
    for id in graph.tensor_ids() {
        let root = graph.tensor(id).storage.root;
        builder.add_tensor(id, &home(root), (root != id).then(|| ValueId::new(root.index())));
    }
    let value = |id: TensorId| Some(ValueId::new(id.index()));
    builder.add_steps(0, &steps, Some(&at), Held::default(), value)?;
    let mut usages = builder.finish();
    Ok(usages.swap_remove(0))
}
