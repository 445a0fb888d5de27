//! From a graph of ggml's to what Orlop plans.

use std::collections::HashMap;

use orlop_alloc::{ArenaId, ArenaInfo, Flags, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo};

use crate::census::Census;
use crate::raw::{FLAG_INPUT, FLAG_OUTPUT, OP_NONE, TensorRef};

/// The arenas that leaves and nodes are placed in, by position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) leaves: Vec<usize>,
    pub(crate) nodes: Vec<usize>,
}

/// What has to be asked about tensors.
pub(crate) struct Questions<'a> {
    /// Bytes that a tensor takes in an arena.
    pub(crate) bytes: &'a dyn Fn(usize, TensorRef) -> u64,
    /// Whether an op may write over its operands.
    pub(crate) may_overwrite: &'a dyn Fn(i32) -> bool,
}

/// The usage of a graph: values are its tensors, steps its nodes, both by position. `larger` has sizes that replace
/// those of the arena where a value is looked for first.
pub(crate) fn usage_of(
    census: &Census,
    arenas: Vec<ArenaInfo>,
    assigned: &Assigned,
    questions: &Questions<'_>,
    larger: &HashMap<u32, u64>,
) -> Usage {
    let mut usage = Usage::new(arenas, Unread::LivesOn);
    let homes = homes(census, assigned);
    let mut is_node = vec![false; census.tensors.len()];
    census.nodes.iter().for_each(|node| is_node[*node as usize] = true);
    let mut layouts = HashMap::new();
    for (index, tensor) in census.tensors.iter().enumerate() {
        let fresh = layouts.len() as u32;
        let layout = *layouts.entry(tensor.layout()).or_insert(fresh);
        let root = census.roots[index] as usize;
        let is_view = root != index;
        let external = is_external(census, root);
        let flags = Flags {
            input: tensor.flags() & FLAG_INPUT != 0,
            output: tensor.flags() & FLAG_OUTPUT != 0,
            external,
            marker: is_view && is_node[index] && tensor.op() == OP_NONE,
        };
        let bytes = match (is_view || external, larger.get(&(index as u32)), homes[index]) {
            (true, ..) | (_, None, None) => 0,
            (_, Some(bytes), _) => *bytes,
            (_, _, Some(arena)) => (questions.bytes)(arena, *tensor),
        };
        // A view is as long as none: what it spans is its root's to keep.
        let info = ValueInfo { bytes, root: ValueId::new(root), offset: 0, layout, flags };
        usage.push_value(tensor.name(), info);
    }
    let place = |(number, arena): (&u32, &usize)| (ValueId::new(*number as usize), ArenaId::new(*arena));
    usage.leaves = census.leaves.iter().zip(&assigned.leaves).map(place).collect();
    for (step, node) in census.nodes.iter().enumerate() {
        let reads: Vec<ValueId> = census.reads(step).map(|source| ValueId::new(source as usize)).collect();
        let may = !census.is_view(*node) && (questions.may_overwrite)(census.tensors[*node as usize].op());
        let slots = if may { 0..reads.len() as u32 } else { 0..0 };
        let overwrites: Vec<OverwritePair> = slots.map(|read| OverwritePair { write: 0, read }).collect();
        usage.push_step(StepView {
            arena: ArenaId::new(assigned.nodes[step]),
            group: step as u32,
            reads: &reads,
            writes: &[ValueId::new(*node as usize)],
            overwrites: &overwrites,
        });
    }
    usage
}

/// Whether a root has memory of somebody else's, or can have none, as only views know it.
pub(crate) fn is_external(census: &Census, root: usize) -> bool {
    !census.listed[root] || census.tensors[root].is_elsewhere()
}

/// The arena in which each root is first looked for: a leaf's own; an input's, and a node's, is that of the first node
/// that writes or reads it.
fn homes(census: &Census, assigned: &Assigned) -> Vec<Option<usize>> {
    let mut homes: Vec<Option<usize>> = vec![None; census.tensors.len()];
    let mut settle = |number: u32, arena: usize| {
        homes[census.roots[number as usize] as usize].get_or_insert(arena);
    };
    for (leaf, arena) in census.leaves.iter().zip(&assigned.leaves) {
        if !census.is_view(*leaf) {
            settle(*leaf, *arena);
        }
    }
    let is_input = |number: u32| {
        let root = census.roots[number as usize] as usize;
        census.tensors[root].flags() & FLAG_INPUT != 0
    };
    for (step, node) in census.nodes.iter().enumerate() {
        for number in [*node].into_iter().chain(census.reads(step)).filter(|number| is_input(*number)) {
            settle(number, assigned.nodes[step]);
        }
    }
    for (step, node) in census.nodes.iter().enumerate() {
        census.reads(step).chain([*node]).for_each(|number| settle(number, assigned.nodes[step]));
    }
    homes
}
