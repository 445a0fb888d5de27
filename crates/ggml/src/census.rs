//! Everybody in a graph, numbered.

use std::collections::HashMap;

use crate::error::Error;
use crate::raw::{GraphRef, MAX_SRC, TensorRef};

/// No tensor.
pub(crate) const NOBODY: u32 = u32::MAX;

/// The tensors of a graph in the order in which they are met: leaves, then each node's sources and the node; the root of
/// a view stands before it.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) tensors: Vec<TensorRef>,
    /// The root of a view; the tensor itself if it is none.
    pub(crate) roots: Vec<u32>,
    /// Bytes from the root's beginning.
    pub(crate) offsets: Vec<usize>,
    /// In the lists, or a source of a node. Others are only roots of views, and nobody places them.
    pub(crate) listed: Vec<bool>,
    pub(crate) leaves: Vec<u32>,
    pub(crate) nodes: Vec<u32>,
    /// The sources of each node, gaps as [`NOBODY`].
    pub(crate) sources: Vec<[u32; MAX_SRC]>,
    known: HashMap<TensorRef, u32>,
}

impl Census {
    pub(crate) fn of(graph: GraphRef<'_>) -> Result<Census, Error> {
        let mut census = Census::default();
        let expected = 2 * graph.node_count() + graph.leaf_count();
        census.known.reserve(expected);
        census.tensors.reserve(expected);
        for (position, leaf) in graph.leaves().enumerate() {
            let leaf = leaf.ok_or(Error::NullTensor { list: "leaves", position })?;
            let number = census.list(leaf)?;
            census.leaves.push(number);
        }
        for (position, node) in graph.nodes().enumerate() {
            let node = node.ok_or(Error::NullTensor { list: "nodes", position })?;
            let mut sources = [NOBODY; MAX_SRC];
            for (number, source) in sources.iter_mut().zip(node.sources()) {
                if let Some(source) = source {
                    *number = census.list(source)?;
                }
            }
            census.sources.push(sources);
            let number = census.list(node)?;
            census.nodes.push(number);
        }
        Ok(census)
    }

    pub(crate) fn is_view(&self, number: u32) -> bool {
        self.roots[number as usize] != number
    }

    /// A node's sources, gaps left out.
    pub(crate) fn reads(&self, node: usize) -> impl Iterator<Item = u32> + '_ {
        self.sources[node].iter().copied().filter(|source| *source != NOBODY)
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

/// The tensor at the end of a chain of views, and the way to it.
fn root(tensor: TensorRef) -> Result<(TensorRef, usize), Error> {
    // ggml makes no chains, so that one this long is a circle.
    const LONGEST: usize = 64;
    let (mut at, mut offset) = (tensor, 0usize);
    for _ in 0..LONGEST {
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
