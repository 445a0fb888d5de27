//! The transformer of Llama and its relatives, which differ in their facts.

use orlop_graph::TensorId;

use super::{ArchitectureFacts, HeadNorms, LayerNorms};
use crate::Error;
use crate::draft::GraphDraft;

/// Norm, attention, norm, feed-forward part or experts, each added to what came in.
pub(super) fn build(draft: &mut GraphDraft<'_>) -> Result<TensorId, Error> {
    let ArchitectureFacts { layer_norms, head_norms, feed_forward, .. } = *draft.config.architecture.facts();
    let factors = draft.rope_factors()?;
    let mut x = draft.embedding()?;
    for layer in 0..draft.layers() {
        draft.enter(layer);
        let normed = draft.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let [mut q, mut k, v] = draft.queries_keys_values(layer, normed)?;
        if head_norms == HeadNorms::Each {
            q = draft.norm(&format!("blk.{layer}.attn_q_norm"), q)?;
            k = draft.norm(&format!("blk.{layer}.attn_k_norm"), k)?;
        }
        let (q, k) = (draft.rope(layer, q, factors), draft.rope(layer, k, factors));
        let attended = draft.attention(layer, [q, k, v])?;
        let (mut attended, kept) = draft.wanted_rows(layer, attended, x);
        if layer_norms == LayerNorms::BeforeAndAfter {
            attended = draft.norm(&format!("blk.{layer}.post_attention_norm"), attended)?;
        }
        let residual = draft.b.add(attended, kept);
        let normed = draft.norm(&format!("blk.{layer}.ffn_norm"), residual)?;
        let mut fed = draft.feed_forward(layer, feed_forward, normed)?;
        if layer_norms == LayerNorms::BeforeAndAfter {
            fed = draft.norm(&format!("blk.{layer}.post_ffw_norm"), fed)?;
        }
        x = draft.b.add(residual, fed);
        draft.b.name(x, format!("blk.{layer}.out"));
    }
    draft.logits(x)
}
