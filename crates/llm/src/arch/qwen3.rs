//! Qwen 3: Llama with normed heads. <https://arxiv.org/abs/2505.09388>

use orlop_graph::{Glu, RopeMode};

use super::{
    ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm, transformer,
};
use crate::draft::FeedForward;

pub(super) const FACTS: ArchitectureFacts = ArchitectureFacts {
    name: "qwen3",
    build: transformer::build,
    mixer: Mixer::Attention,
    norm: Norm::Rms,
    layer_norms: LayerNorms::Before,
    head_norms: HeadNorms::Each,
    rope: RopeMode::Neox,
    embeds_positions: false,
    feed_forward: FeedForward::Gated(Glu::Silu),
    scales_feed_forward: true,
    expert_hidden: ExpertHidden::FeedForward,
    embedding_scale: EmbeddingScale::One,
    caps_logits: false,
    has_windows: false,
    scaled_by_width_at: None,
    fused_qkv: false,
    biased: false,
};
