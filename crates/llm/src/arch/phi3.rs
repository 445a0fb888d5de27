//! Phi 3 and 4: Llama with fused matrices. <https://arxiv.org/abs/2404.14219>

use orlop_graph::{Glu, RopeMode};

use super::{
    ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm, transformer,
};
use crate::draft::FeedForward;

pub(super) const FACTS: ArchitectureFacts = ArchitectureFacts {
    name: "phi3",
    build: transformer::build,
    mixer: Mixer::Attention,
    norm: Norm::Rms,
    layer_norms: LayerNorms::Before,
    head_norms: HeadNorms::Nothing,
    rope: RopeMode::Neox,
    embeds_positions: false,
    feed_forward: FeedForward::Fused(Glu::Silu),
    scales_feed_forward: false,
    expert_hidden: ExpertHidden::FeedForward,
    embedding_scale: EmbeddingScale::One,
    caps_logits: false,
    has_windows: false,
    scaled_by_width_at: None,
    fused_qkv: true,
    biased: false,
};
