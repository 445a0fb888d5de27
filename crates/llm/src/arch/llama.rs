use orlop_graph::{Gate, TensorId};

use crate::Error;
use crate::draft::Draft;

/// What happens to queries and keys before they are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    AsTheyAre,
    /// Each head is normed.
    Normed,
}

/// Norm, attention, norm, gated feed-forward or experts, each added to what came in.
pub(super) fn draw(draft: &mut Draft<'_>, heads: Heads) -> Result<TensorId, Error> {
    let factors = draft.rope_factors()?;
    let mut x = draft.embedding()?;
    for layer in 0..draft.layers() {
        draft.enter(layer);
        let normed = draft.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let [mut q, mut k, v] = draft.queries_keys_values(layer, normed)?;
        if heads == Heads::Normed {
            q = draft.norm(&format!("blk.{layer}.attn_q_norm"), q)?;
            k = draft.norm(&format!("blk.{layer}.attn_k_norm"), k)?;
        }
        let (q, k) = (draft.rope(q, factors), draft.rope(k, factors));
        let attended = draft.attention(layer, [q, k, v])?;
        let (attended, kept) = draft.wanted_rows(layer, attended, x);
        let residual = draft.b.add(attended, kept);
        let normed = draft.norm(&format!("blk.{layer}.ffn_norm"), residual)?;
        let fed = match draft.config.experts {
            None => draft.gated_feed_forward(layer, Gate::Silu, normed)?,
            Some(experts) => draft.experts(layer, Gate::Silu, &experts, normed)?,
        };
        x = draft.b.add(residual, fed);
        draft.b.name(x, format!("blk.{layer}.out"));
    }
    draft.logits(x)
}
