//! GPT-2: embedded positions, norms that subtract the mean, and a feed-forward part without a gate.
//! <https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf>

use orlop_graph::{RopeMode, TensorId, Unary};

use super::{ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm};
use crate::Error;
use crate::draft::{FeedForward, GraphDraft};

pub(super) const FACTS: ArchitectureFacts = ArchitectureFacts {
    name: "gpt2",
    build,
    mixer: Mixer::Attention,
    norm: Norm::Mean,
    layer_norms: LayerNorms::Before,
    head_norms: HeadNorms::Nothing,
    rope: RopeMode::Neox,
    embeds_positions: true,
    feed_forward: FeedForward::Plain(Unary::Gelu),
    scales_feed_forward: false,
    expert_hidden: ExpertHidden::FeedForward,
    embedding_scale: EmbeddingScale::One,
    caps_logits: false,
    has_windows: false,
    scaled_by_width_at: None,
    fused_qkv: true,
    biased: true,
};

fn build(draft: &mut GraphDraft<'_>) -> Result<TensorId, Error> {
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
        let fed = draft.feed_forward(layer, FACTS.feed_forward, normed)?;
        x = draft.b.add(residual, fed);
        draft.b.name(x, format!("blk.{layer}.out"));
    }
    draft.logits(x)
}
