use orlop_graph::{TensorId, Unary};

use crate::Error;
use crate::draft::{FeedForward, GraphDraft};

/// Positions are embedded, not turned; norms take the mean away; the feed-forward part has no gate.
pub(super) fn build(draft: &mut GraphDraft<'_>) -> Result<TensorId, Error> {
    let embedded = draft.embedding()?;
    let mut x = draft.position_embedding(embedded)?;
    for layer in 0..draft.layers() {
        draft.enter(layer);
        let normed = draft.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let heads = draft.queries_keys_values(layer, normed)?;
        let attended = draft.attention(layer, heads)?;
        let (attended, kept) = draft.wanted_rows(layer, attended, x);
        let residual = draft.b.add(attended, kept);
        let normed = draft.norm(&format!("blk.{layer}.ffn_norm"), residual)?;
        let fed = draft.feed_forward(layer, FeedForward::Plain(Unary::Gelu), normed)?;
        x = draft.b.add(residual, fed);
        draft.b.name(x, format!("blk.{layer}.out"));
    }
    draft.logits(x)
}
