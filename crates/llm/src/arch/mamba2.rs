//! Mamba 2: layers of state-space mixers alone. <https://arxiv.org/abs/2405.21060>

use orlop_graph::{Glu, RopeMode, TensorId};

use super::{ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm};
use crate::Error;
use crate::draft::{FeedForward, GraphDraft};

pub(super) const FACTS: ArchitectureFacts = ArchitectureFacts {
    name: "mamba2",
    build,
    mixer: Mixer::StateSpace,
    norm: Norm::Rms,
    layer_norms: LayerNorms::Before,
    head_norms: HeadNorms::Nothing,
    rope: RopeMode::Neox,
    embeds_positions: false,
    feed_forward: FeedForward::Gated(Glu::Silu),
    scales_feed_forward: false,
    expert_hidden: ExpertHidden::FeedForward,
    embedding_scale: EmbeddingScale::One,
    caps_logits: false,
    has_windows: false,
    scaled_by_width_at: None,
    fused_qkv: false,
    biased: false,
};

/// Norm and state-space mixing, added to what came in; no attention, no feed-forward part.
fn build(draft: &mut GraphDraft<'_>) -> Result<TensorId, Error> {
    let mut x = draft.embedding()?;
    for layer in 0..draft.layers() {
        draft.enter(layer);
        let normed = draft.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let mixed = draft.state_space(layer, normed)?;
        let (mixed, kept) = draft.wanted_rows(layer, mixed, x);
        x = draft.b.add(mixed, kept);
        draft.b.name(x, format!("blk.{layer}.out"));
    }
    draft.logits(x)
}
