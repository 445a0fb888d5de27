use orlop_graph::TensorId;

use crate::Error;
use crate::draft::{FeedForward, GraphDraft};

/// What models of this shape differ in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) heads: Heads,
    pub(super) norms: Norms,
    pub(super) feed_forward: FeedForward,
}

/// What happens to queries and keys before they are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    AsTheyAre,
    /// Each head is normed.
    Normed,
}

/// Where attention and feed-forward part are normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Norms {
    Before,
    BeforeAndAfter,
}

/// Norm, attention, norm, feed-forward part or experts, each added to what came in.
pub(super) fn build(draft: &mut GraphDraft<'_>, style: Style) -> Result<TensorId, Error> {
    let factors = draft.rope_factors()?;
    let mut x = draft.embedding()?;
    for layer in 0..draft.layers() {
        draft.enter(layer);
        let normed = draft.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let [mut q, mut k, v] = draft.queries_keys_values(layer, normed)?;
        if style.heads == Heads::Normed {
            q = draft.norm(&format!("blk.{layer}.attn_q_norm"), q)?;
            k = draft.norm(&format!("blk.{layer}.attn_k_norm"), k)?;
        }
        let (q, k) = (draft.rope(layer, q, factors), draft.rope(layer, k, factors));
        let attended = draft.attention(layer, [q, k, v])?;
        let (mut attended, kept) = draft.wanted_rows(layer, attended, x);
        if style.norms == Norms::BeforeAndAfter {
            attended = draft.norm(&format!("blk.{layer}.post_attention_norm"), attended)?;
        }
        let residual = draft.b.add(attended, kept);
        let normed = draft.norm(&format!("blk.{layer}.ffn_norm"), residual)?;
        let mut fed = draft.feed_forward(layer, style.feed_forward, normed)?;
        if style.norms == Norms::BeforeAndAfter {
            fed = draft.norm(&format!("blk.{layer}.post_ffw_norm"), fed)?;
        }
        x = draft.b.add(residual, fed);
        draft.b.name(x, format!("blk.{layer}.out"));
    }
    draft.logits(x)
}
