use orlop_graph::{Gate, TensorId};

use crate::Error;
use crate::draft::Draft;

/// Norm, attention, norm, feed-forward with gate and up in one matrix, each added to what came in.
pub(super) fn draw(draft: &mut Draft<'_>) -> Result<TensorId, Error> {
    let factors = draft.rope_factors()?;
    let mut x = draft.embedding()?;
    for layer in 0..draft.layers() {
        draft.enter(layer);
        let normed = draft.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let [q, k, v] = draft.queries_keys_values(layer, normed)?;
        let (q, k) = (draft.rope(q, factors), draft.rope(k, factors));
        let attended = draft.attention(layer, [q, k, v])?;
        let (attended, kept) = draft.wanted_rows(layer, attended, x);
        let residual = draft.b.add(attended, kept);
        let normed = draft.norm(&format!("blk.{layer}.ffn_norm"), residual)?;
        let fed = match draft.config.experts {
            None => draft.fused_feed_forward(layer, Gate::Silu, normed)?,
            Some(experts) => draft.experts(layer, Gate::Silu, &experts, normed)?,
        };
        x = draft.b.add(residual, fed);
        draft.b.name(x, format!("blk.{layer}.out"));
    }
    draft.logits(x)
}
