//! Qwen 3 with experts instead of one feed-forward part. <https://arxiv.org/abs/2505.09388>

use orlop_graph::{Glu, RopeMode};

use super::{
    ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm, transformer,
};
use crate::draft::FeedForward;

pub(super) const FACTS: ArchitectureFacts = ArchitectureFacts {
    name: "qwen3moe",
    build: transformer::build,
    mixer: Mixer::Attention,
    norm: Norm::Rms,
    layer_norms: LayerNorms::Before,
    head_norms: HeadNorms::Each,
    rope: RopeMode::Neox,
    embeds_positions: false,
    feed_forward: FeedForward::Gated(Glu::Silu),
    scales_feed_forward: true,
    expert_hidden: ExpertHidden::FeedForwardPerUsed,
    embedding_scale: EmbeddingScale::One,
    caps_logits: false,
    has_windows: false,
    scaled_by_width_at: None,
    fused_qkv: false,
    biased: false,
};
