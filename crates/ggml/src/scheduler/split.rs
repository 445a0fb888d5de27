//! Cuts a placed graph into splits, runs of nodes on one backend, and lists the tensors to copy for each.

use std::collections::HashMap;
use std::ops::Range;

use super::place::Scene;
use crate::error::Error;
use crate::graph_tensors::SourceSlot;

/// Nodes in a row on one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GraphSplit {
    pub(crate) backend: usize,
    /// Positions of the nodes.
    pub(crate) nodes: Range<usize>,
    /// The copies to make before they run.
    pub(crate) copies: Range<usize>,
}

/// A tensor in another backend's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorCopy {
    pub(crate) tensor: u32,
    pub(crate) backend: usize,
}

/// An operand that becomes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRead {
    /// The node's position.
    pub(crate) step: usize,
    /// The operand's position.
    pub(crate) slot: usize,
    pub(crate) copy: usize,
}

/// The splits of a graph, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphSplits {
    pub(crate) splits: Vec<GraphSplit>,
    pub(crate) copies: Vec<TensorCopy>,
    pub(crate) reads: Vec<CopyRead>,
    /// Inputs that devices read where they are, or copy when they get to it: the next graph's must lie elsewhere if it may be
    /// prepared meanwhile.
    pub(crate) late_inputs: Vec<u32>,
}

/// Splits a graph whose tensors have these backends.
///
/// A tensor is copied once to a backend, and again only if its memory was written since.
pub(crate) fn split(scene: Scene<'_>, homes: &[Option<usize>]) -> Result<GraphSplits, Error> {
    let graph = scene.graph;
    let mut cut = GraphSplits::default();
    let mut known: HashMap<(u32, usize), (usize, u32)> = HashMap::new();
    let mut versions = vec![0u32; graph.tensors.len()];
    let mut is_late = vec![false; graph.tensors.len()];
    for (step, node) in graph.nodes.iter().enumerate() {
        if scene.is_alias(*node) {
            continue;
        }
        let home_of = |tensor: u32| {
            let name = || graph.tensors[tensor as usize].name();
            homes[tensor as usize].ok_or_else(|| Error::NoBackend { tensor: name() })
        };
        let backend = home_of(*node)?;
        let is_far =
            |source: u32, home: usize| home != backend && !scene.can_read(backend, source, Some(home));
        let sources = graph.sources.of(step);
        // The memory of copied weights is free for those of the next split.
        let has_far_weights = || {
            sources.iter().any(|SourceSlot { tensor, .. }| {
                let home = homes[*tensor as usize];
                scene.facts[*tensor as usize].is_weight && home.is_some_and(|home| is_far(*tensor, home))
            })
        };
        let continues = cut.splits.last().is_some_and(|current: &GraphSplit| {
            current.backend == backend && (current.copies.is_empty() || !has_far_weights())
        });
        if !continues {
            // Aliases before the first computed node belong to the first split.
            let start = if cut.splits.is_empty() { 0 } else { step };
            if let Some(before) = cut.splits.last_mut() {
                before.nodes.end = step;
            }
            let copies = cut.copies.len()..cut.copies.len();
            cut.splits.push(GraphSplit { backend, nodes: start..step, copies });
        }
        for SourceSlot { slot, tensor: source } in sources.iter().copied() {
            let home = home_of(source)?;
            let root = graph.roots[source as usize] as usize;
            let is_far = is_far(source, home);
            // The CPU runs while the program waits, and inputs themselves are copied while it waits.
            let on_device = backend + 1 < scene.backends.count();
            is_late[root] |= if is_far { !scene.facts[source as usize].is_input } else { on_device };
            if !is_far {
                continue;
            }
            let version = versions[root];
            let copy = match known.get(&(source, backend)) {
                Some((copy, of)) if *of == version => *copy,
                _ => {
                    cut.copies.push(TensorCopy { tensor: source, backend });
                    known.insert((source, backend), (cut.copies.len() - 1, version));
                    cut.copies.len() - 1
                }
            };
            cut.reads.push(CopyRead { step, slot: slot as usize, copy });
        }
        let copies = cut.copies.len();
        if let Some(current) = cut.splits.last_mut() {
            current.nodes.end = step + 1;
            current.copies.end = copies;
        }
        if graph.is_view(*node) {
            versions[graph.roots[*node as usize] as usize] += 1;
        }
    }
    match (cut.splits.last_mut(), graph.nodes.first()) {
        (Some(last), _) => last.nodes.end = graph.nodes.len(),
        // Aliases alone: nothing to compute, but their roots need memory.
        (None, Some(first)) => {
            let backend = homes[*first as usize].unwrap_or(0);
            cut.splits.push(GraphSplit { backend, nodes: 0..graph.nodes.len(), copies: 0..0 });
        }
        (None, None) => {}
    }
    let is_late = |root: &u32| {
        let facts = scene.facts[*root as usize];
        is_late[*root as usize] && facts.is_input && facts.memory.is_none()
    };
    cut.late_inputs = (0..graph.tensors.len() as u32).filter(is_late).collect();
    Ok(cut)
}
