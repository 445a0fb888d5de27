//! Transformers with one feed-forward part in each layer.

use orlop_graph::{Glu, RopeMode, Unary};

use super::facts::{EmbeddingScale, Facts, HeadNorms, LayerNorms, Norm, Positions, WindowRules};
use crate::draft::FeedForward;

const NEOX: Positions = Positions::Rope(RopeMode::Neox);

pub(super) const LLAMA: Facts = Facts {
    name: "llama",
    models: "Llama 2 and 3, SmolLM 1 and 2, Mistral, TinyLlama; with experts, Mixtral",
    ..Facts::PLAIN
};

pub(super) const QWEN2: Facts = Facts {
    name: "qwen2",
    models: "Qwen 2 and 2.5",
    positions: NEOX,
    scales_feed_forward: false,
    ..Facts::PLAIN
};

/// <https://arxiv.org/abs/2505.09388>
pub(super) const QWEN3: Facts =
    Facts { name: "qwen3", models: "Qwen 3", head_norms: HeadNorms::Each, positions: NEOX, ..Facts::PLAIN };

/// <https://arxiv.org/abs/2404.14219>
pub(super) const PHI3: Facts = Facts {
    name: "phi3",
    models: "Phi 3 and 4",
    feed_forward: FeedForward::Fused(Glu::Silu),
    fused_qkv: true,
    ..QWEN2
};

/// <https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf>
pub(super) const GPT2: Facts = Facts {
    name: "gpt2",
    models: "GPT-2",
    norm: Norm::Mean,
    positions: Positions::Embedded,
    feed_forward: FeedForward::Plain(Unary::Gelu),
    scales_feed_forward: false,
    fused_qkv: true,
    biased: true,
    ..Facts::PLAIN
};

/// <https://arxiv.org/abs/2503.19786>
pub(super) const GEMMA3: Facts = Facts {
    name: "gemma3",
    models: "Gemma 3, text only",
    norms: LayerNorms::AROUND,
    head_norms: HeadNorms::Each,
    positions: NEOX,
    windows: Some(WindowRules { period: 6, base: Some(10_000.0) }),
    feed_forward: FeedForward::Gated(Glu::Gelu),
    scales_feed_forward: false,
    embedding_scale: EmbeddingScale::RootOfWidth,
    caps_logits: true,
    scaled_by_width_at: Some(62), // the model of 27 billion weights
    ..Facts::PLAIN
};
