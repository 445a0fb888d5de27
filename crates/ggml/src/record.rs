//! What was planned for a graph, so that the next one can be compared with it and bound.

use std::collections::HashSet;

use orlop_alloc::{MemoryPlan, ValueId};

use crate::census::{Census, NOBODY};
use crate::host::Host;
use crate::raw::{BufferType, FLAG_INPUT, FLAG_OUTPUT, GraphRef, MAX_SRC, OP_NONE, TensorRef};
use crate::usage::is_external;

const FLAGS: i32 = FLAG_INPUT | FLAG_OUTPUT;

/// A plan by position in the graph.
#[derive(Debug)]
pub(crate) struct Record {
    facts: Vec<Fact>,
    leaves: Vec<u32>,
    nodes: Vec<u32>,
    sources: Vec<[u32; MAX_SRC]>,
    /// Some tensors that were placed stand in no list. Then it takes a closer look to see that they still are as many.
    strangers: bool,
}

/// What was planned for a tensor, and has to hold for another in its place.
#[derive(Clone, Copy, Debug)]
struct Fact {
    spot: Spot,
    flags: i32,
    /// A node that only keeps its sources alive.
    is_marker: bool,
    /// The op and the operand whose memory it takes over.
    taken: Option<(i32, u32)>,
}

/// Where a tensor's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// In an arena.
    Own { arena: u32, chunk: u32, offset: u64, bytes: u64 },
    /// Where its root is.
    View { root: u32 },
    /// With somebody else.
    Elsewhere,
    /// It is only known through views: nobody places it.
    Unknown,
}

impl Record {
    pub(crate) fn new(census: Census, plan: &MemoryPlan) -> Record {
        let usage = &plan.usage;
        let mut facts: Vec<Fact> = Vec::with_capacity(census.tensors.len());
        for (index, tensor) in census.tensors.iter().enumerate() {
            let root = census.roots[index];
            let spot = match plan.place(ValueId::new(index)) {
                _ if root as usize != index => Spot::View { root },
                Some(place) => Spot::Own {
                    arena: place.arena.index() as u32,
                    chunk: place.chunk,
                    offset: place.offset,
                    bytes: usage.rounded_bytes(ValueId::new(index), place.arena),
                },
                None if !census.listed[index] => Spot::Unknown,
                None => Spot::Elsewhere,
            };
            facts.push(Fact { spot, flags: tensor.flags() & FLAGS, is_marker: false, taken: None });
        }
        for node in &census.nodes {
            let fact = &mut facts[*node as usize];
            let is_view = matches!(fact.spot, Spot::View { .. });
            fact.is_marker = is_view && census.tensors[*node as usize].op() == OP_NONE;
        }
        for decision in plan.decisions.iter().filter(|decision| decision.verdict.is_taken()) {
            let node = decision.value.index();
            facts[node].taken = Some((census.tensors[node].op(), decision.operand.index() as u32));
        }
        let mut in_lists = vec![false; census.tensors.len()];
        census.leaves.iter().chain(&census.nodes).for_each(|number| in_lists[*number as usize] = true);
        let is_stranger = |index: usize| {
            census.roots[index] as usize == index && !in_lists[index] && !is_external(&census, index)
        };
        let strangers = (0..census.tensors.len()).any(is_stranger);
        let Census { leaves, nodes, sources, .. } = census;
        Record { facts, leaves, nodes, sources, strangers }
    }

    /// How many tensors there are.
    pub(crate) fn len(&self) -> usize {
        self.facts.len()
    }

    /// Where a tensor is.
    pub(crate) fn spot(&self, number: usize) -> Spot {
        self.facts[number].spot
    }

    /// Whether the plan serves a graph: every tensor stands where the one stood that was planned for, and asks for no
    /// more. Then `seen` has the graph's tensors by number.
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
        seen.resize(self.facts.len(), None);
        let mut check = Check { record: self, host, arenas, seen };
        let leaves = graph.leaves().zip(&self.leaves);
        for (leaf, number) in leaves {
            if !check.meets(leaf, *number) {
                return false;
            }
        }
        let nodes = graph.nodes().zip(&self.nodes).zip(&self.sources);
        for ((node, number), sources) in nodes {
            let Some(tensor) = node else { return false };
            let given = tensor.sources();
            if !given.into_iter().zip(sources).all(|(source, number)| check.meets(source, *number)) {
                return false;
            }
            if !check.meets(node, *number) || !check.still_in_place(tensor, *number) {
                return false;
            }
        }
        !self.strangers || check.all_differ()
    }
}

/// A comparison under way.
struct Check<'a> {
    record: &'a Record,
    host: &'a Host,
    arenas: &'a [*mut BufferType],
    seen: &'a mut Vec<Option<TensorRef>>,
}

impl Check<'_> {
    /// Whether this tensor is the one of this number, or can be, if it is met for the first time.
    fn meets(&mut self, tensor: Option<TensorRef>, number: u32) -> bool {
        if number == NOBODY {
            return tensor.is_none();
        }
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
        let fact = self.record.facts[number as usize];
        if tensor.flags() & FLAGS != fact.flags {
            return false;
        }
        match fact.spot {
            Spot::View { root } => {
                let mut of = tensor.view_src();
                // ggml makes no chains; should somebody else, planning anew follows them.
                if of.is_some_and(|of| of.view_src().is_some()) {
                    of = None;
                }
                of.is_some() && self.meets(of, root)
            }
            _ if tensor.view_src().is_some() => false,
            Spot::Own { arena, bytes, .. } => {
                tensor.is_elsewhere()
                    || self.host.buft_get_alloc_size(self.arenas[arena as usize], tensor.as_ptr()) as u64
                        <= bytes
            }
            Spot::Elsewhere => tensor.is_elsewhere(),
            Spot::Unknown => true,
        }
    }

    /// Whether a node may still do what it does in place, and keeps alive what it did.
    fn still_in_place(&self, node: TensorRef, number: u32) -> bool {
        let fact = &self.record.facts[number as usize];
        let is_marker = matches!(fact.spot, Spot::View { .. }) && node.op() == OP_NONE;
        is_marker == fact.is_marker
            && fact.taken.is_none_or(|(op, operand)| {
                let operand = self.seen[operand as usize];
                op == node.op() && operand.is_some_and(|operand| operand.layout() == node.layout())
            })
    }

    fn all_differ(&self) -> bool {
        let mut known = HashSet::with_capacity(self.seen.len());
        self.seen.iter().flatten().all(|tensor| known.insert(*tensor))
    }
}
