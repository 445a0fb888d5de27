//! Generated graphs with the contents of their leaves: random ones over most ops, and transformer blocks at
//! tiny sizes. Equal arguments give equal graphs.
//!
//! All numbers stay small: no op overflows, none divides by 0, so runs on different devices can be compared.

mod block;
mod chance;
mod moves;

pub(crate) use block::draw;
pub use block::{BlockError, BlockSize, ExpertShape, block, blocks};

use orlop_graph::Graph;

use crate::Feeds;
use crate::fill::feeds;
use crate::random::Random;
use chance::Sketch;

/// How large a random graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How often an op, or a few that belong together, is added. Default 24.
    pub moves: usize,
    /// Most elements of one value. Default 600.
    pub elements: u64,
}

impl Default for Size {
    fn default() -> Size {
        Size { moves: 24, elements: 600 }
    }
}

/// A random graph: views, chains that can be done in place, operands that are repeated, rows written into states
/// and inputs, several outputs or none declared, several element types.
pub fn graph(seed: u64, size: &Size) -> (Graph, Feeds) {
    let mut sketch = Sketch::new(Random::new(seed), *size);
    for _ in 0..size.moves {
        sketch.one_move();
    }
    let (builder, fills) = sketch.finish();
    let graph = match builder.build() {
        Ok(graph) => graph,
        // Every move checks that its op takes its operands; seeds decide which moves there are, not whether.
        Err(error) => panic!("the graph of seed {seed} is none: {error}"),
    };
    match feeds(&graph, &format!("graph {seed}"), &fills) {
        Ok(feeds) => (graph, feeds),
        // Leaves are of types that have codecs.
        Err(error) => panic!("leaves of the graph of seed {seed} have no contents: {error}"),
    }
}
