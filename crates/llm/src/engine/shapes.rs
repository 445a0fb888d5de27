//! Batch shapes: which graphs are ready after loading, and which of them takes the next tokens.
//!
//! A run takes a fixed number of tokens. Fewer are filled up with tokens that see nothing and write nothing, so no graph is
//! planned after a model is loaded. A state cannot skip a token: there, a run takes as many as it has.

use std::cmp::Reverse;
use std::sync::Arc;

use super::run::{Item, within_outputs};
use super::{Engine, Ready};
use crate::{BatchShape, Blueprint, Error};

/// Rows that a product computes in about the time in which it reads its weights.
const READ_BOUND: u64 = 16;

impl Engine {
    /// Makes the graphs of all shapes ready. Those that the blueprint does not have are planned within its memory; a shape that
    /// would need more is left out.
    pub(super) fn ready_shapes(&mut self) -> Result<(), Error> {
        let Engine { blueprint, session, loaded, ready, .. } = self;
        for graph in blueprint.graphs() {
            let externals = graph.externals(loaded);
            let plan = session.adopt(&graph.graph.graph, &externals, Arc::clone(&graph.planned))?;
            ready.push(Ready::new(plan, &graph.graph));
        }
        for tokens in self.blueprint.small_runs() {
            if self.ready.iter().all(|ready| ready.shape.tokens != tokens) {
                let shape = BatchShape::new(tokens, &self.blueprint.settings);
                let graph = self.blueprint.plan_shape(shape, |_| false)?;
                match self.adopt_within(&graph) {
                    Err(orlop_sched::Error::WouldGrow { .. }) => {}
                    plan => self.ready.push(Ready::new(plan?, &graph.graph)),
                }
            }
        }
        self.ready.sort_by_key(|ready| (ready.shape.tokens, Reverse(ready.shape.outputs)));
        self.ready.dedup_by_key(|ready| ready.shape.tokens);
        Ok(())
    }

    /// How many tokens the runs take that are filled up least, ascending: the graphs that are ready.
    pub fn batch_sizes(&self) -> impl Iterator<Item = u64> {
        self.ready.iter().map(|ready| ready.shape.tokens)
    }

    /// The graph for the next of some tokens, and how many of them it takes.
    pub(super) fn next_shape(&self, items: &[Item]) -> (usize, usize) {
        // Tokens that fill up a run would count for importance.
        let pad = !self.keeps_states() && !self.blueprint.settings.importance;
        let tokens = items.len() as u64;
        let shapes = self.ready.iter().map(|ready| ready.shape);
        let (index, taken) = next_shape(shapes.clone().map(|shape| shape.tokens), tokens, pad);
        let within = within_outputs(&items[..taken], self.ready[index].shape.outputs).len();
        if within == taken {
            return (index, taken);
        }
        // Small runs give the logits of all their tokens.
        let small = shapes.take_while(|shape| shape.outputs == shape.tokens).map(|shape| shape.tokens);
        let (small, most) = next_shape(small, tokens, pad);
        if pad && within >= most { (index, within) } else { (small, most) }
    }
}

impl Blueprint {
    /// Tokens of the runs between one token and a whole batch.
    fn small_runs(&self) -> impl Iterator<Item = u64> + use<> {
        let step = if self.settings.sequences > 1 || self.model.config().keeps_states() { 2u64 } else { 8 };
        let batch = self.batch();
        std::iter::successors(Some(step), move |tokens| tokens.checked_mul(step))
            .take_while(move |tokens| *tokens < batch)
    }

    /// The runs in which some tokens are fed: tokens of the graph, and how many of them count.
    pub(crate) fn runs_of(&self, tokens: u64) -> Vec<(u64, u64)> {
        let sizes: Vec<u64> = [1].into_iter().chain(self.small_runs()).chain([self.batch()]).collect();
        let pad = !self.model.config().keeps_states();
        let (mut left, mut runs) = (tokens, Vec::new());
        while left > 0 {
            let (index, taken) = next_shape(sizes.iter().copied(), left, pad);
            runs.push((sizes[index], taken as u64));
            left -= taken as u64;
        }
        runs
    }
}

/// The shape that takes least time for the next of `tokens` tokens, and how many of them it takes. Shapes begin with 1, and grow.
fn next_shape(shapes: impl Iterator<Item = u64> + Clone, tokens: u64, pad: bool) -> (usize, usize) {
    let time = |shape: u64| shape.max(READ_BOUND);
    let below = shapes.clone().enumerate().take_while(|(_, shape)| *shape <= tokens).last().unwrap_or((0, 1));
    let above = shapes.enumerate().find(|(_, shape)| *shape >= tokens);
    match above {
        Some((index, shape)) if pad && time(shape) <= time(below.1) * tokens.div_ceil(below.1) => {
            (index, tokens as usize)
        }
        _ => (below.0, below.1 as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::next_shape;

    const SHAPES: [u64; 4] = [1, 8, 64, 512];

    #[test]
    fn tokens_are_filled_up_where_that_takes_less_time() {
        for (tokens, shape, taken) in [
            (1, 1, 1),
            (2, 8, 2),
            (8, 8, 8),
            (9, 8, 8),
            (20, 8, 8),
            (40, 64, 40),
            (64, 64, 64),
            (100, 64, 64),
            (470, 512, 470),
            (512, 512, 512),
            (5000, 512, 512),
        ] {
            let (index, took) = next_shape(SHAPES.into_iter(), tokens, true);
            assert_eq!((SHAPES[index], took), (shape, taken), "{tokens}");
        }
    }

    #[test]
    fn states_skip_no_token() {
        for (tokens, shape) in [(1, 1), (7, 1), (63, 8), (100, 64), (600, 512)] {
            let (index, took) = next_shape(SHAPES.into_iter(), tokens, false);
            assert_eq!((SHAPES[index], took), (shape, shape as usize), "{tokens}");
        }
    }
}
