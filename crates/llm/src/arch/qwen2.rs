//! Qwen 2 and 2.5: Llama with biases of queries, keys and values. <https://arxiv.org/abs/2407.10671>

use orlop_graph::{Glu, RopeMode};

use super::{
    ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm, transformer,
};
use crate::draft::FeedForward;

pub(super) const FACTS: ArchitectureFacts = ArchitectureFacts {
    name: "qwen2",
    build: transformer::build,
    mixer: Mixer::Attention,
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
