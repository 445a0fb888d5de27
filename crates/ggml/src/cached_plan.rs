//! A stored plan, to compare the next graph with and to bind its tensors.

use std::collections::HashSet;

use orlop_alloc::{MemoryPlan, ValueId};

use crate::graph_tensors::{GraphTensors, NodeSources};
use crate::host::Host;
use crate::raw::{BufferType, FLAG_INPUT, FLAG_OUTPUT, GraphRef, OP_NONE, TensorRef};
use crate::usage::is_external;

const FLAGS: i32 = FLAG_INPUT | FLAG_OUTPUT;

/// A plan by tensor number.
#[derive(Debug)]
pub(crate) struct CachedPlan {
    tensors: Vec<PlannedTensor>,
    leaves: Vec<u32>,
    nodes: Vec<u32>,
    sources: NodeSources,
    /// Some placed tensors are neither leaves nor nodes; a new graph must have as many distinct ones.
    has_unlisted: bool,
}

/// The plan of a tensor, and the properties that a tensor in its position must have.
#[derive(Clone, Copy, Debug)]
struct PlannedTensor {
    memory: TensorMemory,
    flags: i32,
    /// A node that only extends the lifetime of its sources.
    is_marker: bool,
    /// The op and the operand that it overwrites in place.
    taken: Option<(i32, u32)>,
}

/// The memory of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorMemory {
    /// In an arena.
    Own { arena: u32, chunk: u32, offset: u64, bytes: u64 },
    /// In its root.
    View { root: u32 },
    /// External.
    External,
    /// Not placed: only a root of views.
    Unknown,
}

impl CachedPlan {
    pub(crate) fn new(graph_tensors: GraphTensors, plan: &MemoryPlan) -> CachedPlan {
        let usage = &plan.usage;
        let mut tensors: Vec<PlannedTensor> = Vec::with_capacity(graph_tensors.tensors.len());
        for (index, tensor) in graph_tensors.tensors.iter().enumerate() {
            let root = graph_tensors.roots[index];
            let memory = match plan.place(ValueId::new(index)) {
                _ if root as usize != index => TensorMemory::View { root },
                Some(place) => TensorMemory::Own {
                    arena: place.arena.index() as u32,
                    chunk: place.chunk,
                    offset: place.offset,
                    bytes: usage.rounded_bytes(ValueId::new(index), place.arena),
                },
                None if !graph_tensors.listed[index] => TensorMemory::Unknown,
                None => TensorMemory::External,
            };
            tensors.push(PlannedTensor {
                memory,
                flags: tensor.flags() & FLAGS,
                is_marker: false,
                taken: None,
            });
        }
        for node in &graph_tensors.nodes {
            let planned = &mut tensors[*node as usize];
            let is_view = matches!(planned.memory, TensorMemory::View { .. });
            planned.is_marker = is_view && graph_tensors.tensors[*node as usize].op() == OP_NONE;
        }
        for decision in plan.decisions.iter().filter(|decision| decision.verdict.is_taken()) {
            let node = decision.value.index();
            tensors[node].taken = Some((graph_tensors.tensors[node].op(), decision.operand.index() as u32));
        }
        let mut in_lists = vec![false; graph_tensors.tensors.len()];
        graph_tensors
            .leaves
            .iter()
            .chain(&graph_tensors.nodes)
            .for_each(|number| in_lists[*number as usize] = true);
        let is_unlisted = |index: usize| {
            graph_tensors.roots[index] as usize == index
                && !in_lists[index]
                && !is_external(&graph_tensors, index)
        };
        let has_unlisted = (0..graph_tensors.tensors.len()).any(is_unlisted);
        let GraphTensors { leaves, nodes, sources, .. } = graph_tensors;
        CachedPlan { tensors, leaves, nodes, sources, has_unlisted }
    }

    /// Number of tensors.
    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }

    /// The memory of a tensor.
    pub(crate) fn memory(&self, number: usize) -> TensorMemory {
        self.tensors[number].memory
    }

    /// Whether the plan fits a graph: every tensor has the position and at most the size of the planned one. If so, `seen`
    /// holds the graph's tensors by number.
    pub(crate) fn fits(
        &self,
        graph: GraphRef<'_>,
        host: &Host,
        arenas: &[*mut BufferType],
        seen: &mut Vec<Option<TensorRef>>,
    ) -> bool {
        if graph.node_count() != self.nodes.len() || graph.leaf_count() != self.leaves.len() {
            return false;
        }
        seen.clear();
        seen.resize(self.tensors.len(), None);
        let mut check = Check { record: self, host, arenas, seen };
        let leaves = graph.leaves().zip(&self.leaves);
        for (leaf, number) in leaves {
            if !check.meets(leaf, *number) {
                return false;
            }
        }
        for (position, (node, number)) in graph.nodes().zip(&self.nodes).enumerate() {
            let Some(tensor) = node else { return false };
            let mut planned = self.sources.of(position).iter().peekable();
            for (slot, source) in (0..).zip(tensor.sources()) {
                let fits = match planned.next_if(|planned| planned.slot == slot) {
                    Some(planned) => check.meets(source, planned.tensor),
                    None => source.is_none(),
                };
                if !fits {
                    return false;
                }
            }
            if !check.meets(node, *number) || !check.still_in_place(tensor, *number) {
                return false;
            }
        }
        !self.has_unlisted || check.all_differ()
    }
}

/// The state of a comparison.
struct Check<'a> {
    record: &'a CachedPlan,
    host: &'a Host,
    arenas: &'a [*mut BufferType],
    seen: &'a mut Vec<Option<TensorRef>>,
}

impl Check<'_> {
    /// Whether this tensor has this number, or can get it at its first occurrence.
    fn meets(&mut self, tensor: Option<TensorRef>, number: u32) -> bool {
        let Some(tensor) = tensor else { return false };
        match self.seen[number as usize] {
            Some(known) => known == tensor,
            None => {
                self.seen[number as usize] = Some(tensor);
                self.can_be(tensor, number)
            }
        }
    }

    fn can_be(&mut self, tensor: TensorRef, number: u32) -> bool {
        let planned = self.record.tensors[number as usize];
        if tensor.flags() & FLAGS != planned.flags {
            return false;
        }
        match planned.memory {
            TensorMemory::View { root } => {
                let mut of = tensor.view_src();
                // ggml creates no chains of views; a new plan handles them.
                if of.is_some_and(|of| of.view_src().is_some()) {
                    of = None;
                }
                of.is_some() && self.meets(of, root)
            }
            _ if tensor.view_src().is_some() => false,
            TensorMemory::Own { arena, bytes, .. } => {
                tensor.is_allocated()
                    || self.host.buft_get_alloc_size(self.arenas[arena as usize], tensor.as_ptr()) as u64
                        <= bytes
            }
            TensorMemory::External => tensor.is_allocated(),
            TensorMemory::Unknown => true,
        }
    }

    /// Whether a node may still run in place and still extends the same lifetimes.
    fn still_in_place(&self, node: TensorRef, number: u32) -> bool {
        let planned = &self.record.tensors[number as usize];
        let is_marker = matches!(planned.memory, TensorMemory::View { .. }) && node.op() == OP_NONE;
        is_marker == planned.is_marker
            && planned.taken.is_none_or(|(op, operand)| {
                let operand = self.seen[operand as usize];
                op == node.op() && operand.is_some_and(|operand| operand.layout() == node.layout())
            })
    }

    fn all_differ(&self) -> bool {
        let mut known = HashSet::with_capacity(self.seen.len());
        self.seen.iter().flatten().all(|tensor| known.insert(*tensor))
    }
}
