//! Batch shapes: which runs have a graph.
//!
//! A run takes a fixed number of tokens. Fewer are filled up with tokens that see nothing and write nothing, so no graph is
//! planned after a model is loaded. A state cannot skip a token: there, a run takes as many as it has.

use crate::{BatchShape, Config, Outputs, Settings};

/// Batches of up to this many tokens give the logits of all of them.
const FEW: u64 = 16;

/// The shapes of all runs, from one token to a whole batch: fewest tokens first, and of those fewest rows of logits first.
pub(crate) fn run_shapes(config: &Config, settings: &Settings, batch: u64) -> Vec<BatchShape> {
    let sizes = [1].into_iter().chain(small_runs(config, settings, batch)).chain([batch]);
    let runs = sizes.flat_map(|tokens| {
        let outputs = outputs(tokens, settings);
        // One sequence is fed a prompt more often than many at once, and wants one row.
        let one = (settings.outputs == Outputs::Last && outputs < tokens).then_some(1);
        one.into_iter().chain([outputs]).map(move |outputs| BatchShape { tokens, outputs })
    });
    let verified = verified_sizes(settings.draft, batch).map(|tokens| BatchShape { tokens, outputs: tokens });
    let mut shapes: Vec<BatchShape> = runs.chain(verified).collect();
    // A whole batch comes last, with as many rows as any.
    shapes.sort_by_key(|shape| (shape.tokens, shape.outputs));
    shapes.dedup();
    shapes
}

/// Rows of logits of a run of some tokens: of every token where there are few, else of one for each sequence.
fn outputs(tokens: u64, settings: &Settings) -> u64 {
    match settings.outputs {
        Outputs::Last if tokens > FEW => settings.sequences.min(tokens),
        Outputs::Texts(_) => settings.sequences.min(tokens),
        Outputs::Last | Outputs::All => tokens,
    }
}

/// Tokens of the runs between one token and a whole batch.
fn small_runs(config: &Config, settings: &Settings, batch: u64) -> impl Iterator<Item = u64> + use<> {
    let (first, step) = match settings.outputs {
        Outputs::Texts(_) => (8u64, 2u64),
        _ if settings.sequences > 1 || config.keeps_states() => (2, 2),
        _ => (8, 8),
    };
    std::iter::successors(Some(first), move |tokens| tokens.checked_mul(step))
        .take_while(move |tokens| *tokens < batch)
}

/// How many tokens the runs that verify drafts have: powers of two from 4, because smaller ones take hardly less time, and the
/// longest draft with the token before it.
pub(crate) fn verified_sizes(draft: u64, batch: u64) -> impl Iterator<Item = u64> + use<> {
    let most = draft.saturating_add(1).min(batch);
    let powers = (2..u64::BITS).map(|power| 1 << power).take_while(move |size| *size < most);
    powers.chain((most > 1).then_some(most))
}
