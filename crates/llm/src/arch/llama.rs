//! Llama: the [transformer](https://arxiv.org/abs/2302.13971) that most others vary. Its files have permuted queries and
//! keys, so that neighbouring elements are turned together.

use orlop_graph::{Glu, RopeMode};

use super::{
    ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm, transformer,
};
use crate::draft::FeedForward;

pub(super) const FACTS: ArchitectureFacts = ArchitectureFacts {
    name: "llama",
    build: transformer::build,
    mixer: Mixer::Attention,
    norm: Norm::Rms,
    layer_norms: LayerNorms::Before,
    head_norms: HeadNorms::Nothing,
    rope: RopeMode::Normal,
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
