//! Converts a ggml graph to a usage that Orlop plans.

use std::collections::HashMap;

use orlop_alloc::{ArenaId, ArenaInfo, Flags, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo};

use crate::graph_tensors::GraphTensors;
use crate::pointers::WordMap;
use crate::raw::{FLAG_INPUT, FLAG_OUTPUT, MAX_SRC, OP_NONE, TensorRef};

/// The arenas of leaves and nodes, by position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ArenaAssignment {
    pub(crate) leaves: Vec<usize>,
    pub(crate) nodes: Vec<usize>,
}

/// Facts about tensors from the host.
pub(crate) struct TensorQueries<'a> {
    /// Bytes of a tensor in an arena.
    pub(crate) bytes: &'a dyn Fn(usize, TensorRef) -> u64,
    /// Whether an op may overwrite its operands.
    pub(crate) may_overwrite: &'a dyn Fn(i32) -> bool,
    /// Values get the tensors' names, which reports and errors need.
    pub(crate) are_named: bool,
}

/// The usage of a graph: values are its tensors, steps its nodes, both by position. `larger` overrides sizes.
pub(crate) fn usage_of(
    graph_tensors: &GraphTensors,
    arenas: Vec<ArenaInfo>,
    assigned: &ArenaAssignment,
    queries: &TensorQueries<'_>,
    larger: &HashMap<u32, u64>,
) -> Usage {
    let first_arenas = first_arenas(graph_tensors, arenas.len(), assigned);
    let mut usage = Usage::new(arenas, Unread::LivesOn);
    let mut is_node = vec![false; graph_tensors.tensors.len()];
    graph_tensors.nodes.iter().for_each(|node| is_node[*node as usize] = true);
    usage.reserve(graph_tensors.tensors.len(), graph_tensors.nodes.len());
    let mut layouts = WordMap::default();
    for (index, tensor) in graph_tensors.tensors.iter().enumerate() {
        let root = graph_tensors.roots[index] as usize;
        let is_view = root != index;
        let external = is_external(graph_tensors, root);
        let fresh = layouts.len() as u32;
        // Nothing takes the place of views and of external memory.
        let layout = match is_view || external {
            true => u32::MAX,
            false => *layouts.entry(tensor.layout()).or_insert(fresh),
        };
        let flags = Flags {
            input: tensor.flags() & FLAG_INPUT != 0,
            output: tensor.flags() & FLAG_OUTPUT != 0,
            external,
            marker: is_view && is_node[index] && tensor.op() == OP_NONE,
        };
        let bytes = match (is_view || external, larger.get(&(index as u32)), first_arenas[index]) {
            (true, ..) | (_, None, None) => 0,
            (_, Some(bytes), _) => *bytes,
            (_, _, Some(arena)) => (queries.bytes)(arena, *tensor),
        };
        // A view has no bytes; its root covers its extent.
        let info = ValueInfo { bytes, root: ValueId::new(root), offset: 0, layout, flags };
        usage.push_value(if queries.are_named { tensor.name() } else { String::new() }, info);
    }
    let place = |(number, arena): (&u32, &usize)| (ValueId::new(*number as usize), ArenaId::new(*arena));
    usage.leaves = graph_tensors.leaves.iter().zip(&assigned.leaves).map(place).collect();
    for (step, node) in graph_tensors.nodes.iter().enumerate() {
        let (mut reads, mut overwrites) =
            ([ValueId::new(0); MAX_SRC], [OverwritePair { write: 0, read: 0 }; MAX_SRC]);
        let mut count = 0;
        for source in graph_tensors.reads(step) {
            reads[count] = ValueId::new(source as usize);
            overwrites[count].read = count as u32;
            count += 1;
        }
        let may = !graph_tensors.is_view(*node)
            && (queries.may_overwrite)(graph_tensors.tensors[*node as usize].op());
        usage.push_step(StepView {
            arena: ArenaId::new(assigned.nodes[step]),
            group: step as u32,
            reads: &reads[..count],
            writes: &[ValueId::new(*node as usize)],
            overwrites: &overwrites[..if may { count } else { 0 }],
        });
    }
    usage
}

/// Whether a root is already allocated, or only a root of views.
pub(crate) fn is_external(graph_tensors: &GraphTensors, root: usize) -> bool {
    !graph_tensors.listed[root] || graph_tensors.tensors[root].is_allocated()
}

/// The arena that determines each root's size: a leaf's own, else that of the first node that writes or reads it.
fn first_arenas(
    graph_tensors: &GraphTensors,
    arenas: usize,
    assigned: &ArenaAssignment,
) -> Vec<Option<usize>> {
    if arenas == 1 {
        return vec![Some(0); graph_tensors.tensors.len()];
    }
    let mut first_arenas: Vec<Option<usize>> = vec![None; graph_tensors.tensors.len()];
    let mut assign = |number: u32, arena: usize| {
        first_arenas[graph_tensors.roots[number as usize] as usize].get_or_insert(arena);
    };
    for (leaf, arena) in graph_tensors.leaves.iter().zip(&assigned.leaves) {
        if !graph_tensors.is_view(*leaf) {
            assign(*leaf, *arena);
        }
    }
    let is_input = |number: u32| {
        let root = graph_tensors.roots[number as usize] as usize;
        graph_tensors.tensors[root].flags() & FLAG_INPUT != 0
    };
    for (step, node) in graph_tensors.nodes.iter().enumerate() {
        for number in [*node].into_iter().chain(graph_tensors.reads(step)).filter(|number| is_input(*number))
        {
            assign(number, assigned.nodes[step]);
        }
    }
    for (step, node) in graph_tensors.nodes.iter().enumerate() {
        graph_tensors.reads(step).chain([*node]).for_each(|number| assign(number, assigned.nodes[step]));
    }
    first_arenas
}
