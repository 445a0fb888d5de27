//! Gemma 3: norms before and after each part, and windows in most layers. <https://arxiv.org/abs/2503.19786>

use orlop_graph::{Glu, RopeMode};

use super::{
    ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm, transformer,
};
use crate::draft::FeedForward;

pub(super) const FACTS: ArchitectureFacts = ArchitectureFacts {
    name: "gemma3",
    build: transformer::build,
    mixer: Mixer::Attention,
    norm: Norm::Rms,
    layer_norms: LayerNorms::BeforeAndAfter,
    head_norms: HeadNorms::Each,
    rope: RopeMode::Neox,
    embeds_positions: false,
    feed_forward: FeedForward::Gated(Glu::Gelu),
    scales_feed_forward: false,
    expert_hidden: ExpertHidden::FeedForward,
    embedding_scale: EmbeddingScale::RootOfWidth,
    caps_logits: true,
    has_windows: true,
    scaled_by_width_at: Some(62), // the model of 27 billion weights
    fused_qkv: false,
    biased: false,
};
