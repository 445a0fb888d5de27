//! Numbers the tensors of a graph.

use crate::error::Error;
use crate::pointers::TensorMap;
use crate::raw::{GraphRef, TensorRef};

/// A source of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceSlot {
    pub(crate) slot: u32,
    pub(crate) tensor: u32,
}

/// The tensors of a graph in order of first use: leaves, then each node's sources and the node; the root of a view comes
/// before it.
#[derive(Debug, Default)]
pub(crate) struct GraphTensors {
    pub(crate) tensors: Vec<TensorRef>,
    /// The root of a view; the tensor itself if it is not a view.
    pub(crate) roots: Vec<u32>,
    /// Bytes from the root's start.
    pub(crate) offsets: Vec<usize>,
    /// A leaf, a node, or a source of a node. Others are only roots of views and not placed.
    pub(crate) listed: Vec<bool>,
    pub(crate) leaves: Vec<u32>,
    pub(crate) nodes: Vec<u32>,
    pub(crate) sources: NodeSources,
    known: TensorMap<u32>,
}

/// The sources of all nodes, one after the other.
#[derive(Debug, Default)]
pub(crate) struct NodeSources {
    slots: Vec<SourceSlot>,
    /// For each node, the end of its sources.
    ends: Vec<u32>,
}

impl NodeSources {
    /// A node's sources without gaps.
    pub(crate) fn of(&self, node: usize) -> &[SourceSlot] {
        let start = node.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.slots[start as usize..self.ends[node] as usize]
    }
}

impl GraphTensors {
    pub(crate) fn of(graph: GraphRef<'_>) -> Result<GraphTensors, Error> {
        let mut graph_tensors = GraphTensors::default();
        // Sources are nodes or leaves, and so are the roots of views, but for a few.
        let expected = graph.node_count() + graph.leaf_count();
        graph_tensors.known.reserve(expected);
        graph_tensors.tensors.reserve(expected);
        graph_tensors.roots.reserve(expected);
        graph_tensors.offsets.reserve(expected);
        graph_tensors.listed.reserve(expected);
        graph_tensors.nodes.reserve(graph.node_count());
        graph_tensors.sources.ends.reserve(graph.node_count());
        // Most ops have two.
        graph_tensors.sources.slots.reserve(2 * graph.node_count());
        for (position, leaf) in graph.leaves().enumerate() {
            let leaf = leaf.ok_or(Error::NullTensor { list: "leaves", position })?;
            let number = graph_tensors.list(leaf)?;
            graph_tensors.leaves.push(number);
        }
        for (position, node) in graph.nodes().enumerate() {
            let node = node.ok_or(Error::NullTensor { list: "nodes", position })?;
            for (slot, source) in (0..).zip(node.sources()) {
                if let Some(source) = source {
                    let tensor = graph_tensors.list(source)?;
                    graph_tensors.sources.slots.push(SourceSlot { slot, tensor });
                }
            }
            graph_tensors.sources.ends.push(graph_tensors.sources.slots.len() as u32);
            let number = graph_tensors.list(node)?;
            graph_tensors.nodes.push(number);
        }
        Ok(graph_tensors)
    }

    pub(crate) fn is_view(&self, number: u32) -> bool {
        self.roots[number as usize] != number
    }

    /// The number of a tensor.
    pub(crate) fn number_of(&self, tensor: TensorRef) -> Option<u32> {
        self.known.get(&tensor).copied()
    }

    /// A node's sources without gaps.
    pub(crate) fn reads(&self, node: usize) -> impl Iterator<Item = u32> + '_ {
        self.sources.of(node).iter().map(|source| source.tensor)
    }

    fn list(&mut self, tensor: TensorRef) -> Result<u32, Error> {
        let number = self.number(tensor)?;
        self.listed[number as usize] = true;
        Ok(number)
    }

    fn number(&mut self, tensor: TensorRef) -> Result<u32, Error> {
        if let Some(number) = self.known.get(&tensor) {
            return Ok(*number);
        }
        let (root, offset) = root(tensor)?;
        let root = match root == tensor {
            true => None,
            false => Some(self.number(root)?),
        };
        let number = self.tensors.len() as u32;
        self.known.insert(tensor, number);
        self.tensors.push(tensor);
        self.roots.push(root.unwrap_or(number));
        self.offsets.push(offset);
        self.listed.push(false);
        Ok(number)
    }
}

/// The root of a chain of views, and the offset in it.
fn root(tensor: TensorRef) -> Result<(TensorRef, usize), Error> {
    // ggml creates no chains, so a longer one is a cycle.
    const MAX_CHAIN: usize = 64;
    let (mut at, mut offset) = (tensor, 0usize);
    for _ in 0..MAX_CHAIN {
        match at.view_src() {
            None => return Ok((at, offset)),
            Some(of) => {
                offset = offset.saturating_add(at.view_offs());
                at = of;
            }
        }
    }
    Err(Error::ViewLoop { tensor: tensor.name() })
}
