//! Graphs that are ready after loading, and which of them takes the next tokens.

use std::sync::Arc;

use super::run::Item;
use super::{Engine, Ready};
use crate::Error;

impl Engine {
    /// Makes the graphs of all shapes ready.
    pub(super) fn ready_shapes(&mut self) -> Result<(), Error> {
        let Engine { blueprint, session, loaded, ready, .. } = self;
        // The largest first, so that memory is allocated once.
        for graph in blueprint.graphs.iter().rev() {
            let externals = graph.externals(loaded);
            let plan = session.adopt(&graph.graph.graph, &externals, Arc::clone(&graph.planned))?;
            ready.push(Ready::new(plan, &graph.graph));
        }
        ready.reverse();
        Ok(())
    }

    /// How many tokens the runs take that are filled up least, ascending: the graphs that are ready.
    pub fn batch_sizes(&self) -> impl Iterator<Item = u64> {
        let sizes = self.ready.chunk_by(|one, other| one.shape.tokens == other.shape.tokens);
        sizes.map(|same| same[0].shape.tokens)
    }

    /// The graph for the next of some tokens, and how many of them it takes.
    pub(super) fn next_shape(&self, items: &[Item]) -> (usize, usize) {
        // No run takes more.
        let most = items.len().min(self.blueprint.batch() as usize);
        self.runs.first(items[..most].iter().map(|item| item.wanted))
    }

    /// The graph for as many of the first of some tokens as one run verifies, and how many that is.
    pub(super) fn verified_shape(&self, items: &[Item]) -> (usize, usize) {
        self.runs.verify(items.len().min(self.blueprint.batch() as usize))
    }
}
