//! Transformers with one feed-forward part in each layer.

use orlop_graph::{Glu, RopeMode, Unary};

use super::facts::{
    AttentionGate, Classifier, ExpertRules, Facts, HeadNorms, LayerNorms, Mixers, Norm, Positions, Residual,
    Scales, Turned, WindowRules,
};
use crate::draft::FeedForward;

pub(super) const NEOX: Positions = Positions::Rope(RopeMode::Neox);

/// Three of four layers have a window.
pub(super) const WINDOWS: WindowRules =
    WindowRules { period: 4, default: None, base: None, scaled: true, first_sees_all: false };

pub(super) const LLAMA: Facts = Facts::PLAIN;

pub(super) const SMOLLM3: Facts =
    Facts { name: "smollm3", models: "SmolLM 3", turned: Turned::AllBut(4), ..LLAMA };

pub(super) const MISTRAL3: Facts =
    Facts { name: "mistral3", models: "Ministral 3, Mistral Small 3", ..LLAMA };

pub(super) const INTERNLM2: Facts = Facts { name: "internlm2", models: "InternLM 2 and 2.5", ..LLAMA };

pub(super) const ERNIE4_5: Facts = Facts { name: "ernie4_5", models: "ERNIE 4.5", ..LLAMA };

pub(super) const DECI: Facts =
    Facts { name: "deci", models: "DeciLM, Llama Nemotron", mixers: Mixers::SomeAttention, ..LLAMA };

pub(super) const XVERSE: Facts = Facts { name: "xverse", models: "XVERSE", ..LLAMA };

pub(super) const ARCEE: Facts =
    Facts { name: "arcee", models: "AFM 4.5B", feed_forward: FeedForward::Squared(Unary::Relu), ..LLAMA };

pub(super) const GRANITE: Facts = Facts {
    name: "granite",
    models: "Granite 3 and 4, dense",
    scales: Scales::Granite,
    turned: Turned::ByKey,
    ..LLAMA
};

/// <https://arxiv.org/abs/2404.06395>
pub(super) const MINICPM: Facts = Facts {
    name: "minicpm",
    models: "MiniCPM 1 to 4",
    scales: Scales::MiniCpm,
    turned: Turned::All,
    ..GRANITE
};

pub(super) const QWEN2: Facts =
    Facts { name: "qwen2", models: "Qwen 2 and 2.5", positions: NEOX, ..Facts::PLAIN };

pub(super) const EXAONE: Facts = Facts { name: "exaone", models: "EXAONE 3 and Deep", ..QWEN2 };

pub(super) const ORION: Facts = Facts { name: "orion", models: "Orion 14B", norm: Norm::Mean, ..QWEN2 };

pub(super) const QWEN2VL: Facts =
    Facts { name: "qwen2vl", models: "Qwen 2 VL and 2.5 VL, text only", ..QWEN2 };

pub(super) const SEED_OSS: Facts =
    Facts { name: "seed_oss", models: "Seed-OSS", norms: LayerNorms::RENAMED, ..QWEN2 };

/// <https://arxiv.org/abs/2505.09388>
pub(super) const QWEN3: Facts = Facts {
    name: "qwen3",
    models: "Qwen 3",
    head_norms: HeadNorms::Each,
    positions: NEOX,
    classifier: Classifier::Probabilities,
    ..Facts::PLAIN
};

pub(super) const QWEN3VL: Facts = Facts { name: "qwen3vl", models: "Qwen 3 VL, text only", ..QWEN3 };

pub(super) const HUNYUAN_DENSE: Facts =
    Facts { name: "hunyuan-dense", models: "Hunyuan 0.5B to 7B", head_norms: HeadNorms::AfterRope, ..QWEN2 };

/// <https://arxiv.org/abs/2404.14219>
pub(super) const PHI3: Facts = Facts {
    name: "phi3",
    models: "Phi 3 and 4",
    feed_forward: FeedForward::Fused(Glu::Silu),
    fused_qkv: true,
    ..QWEN2
};

/// <https://arxiv.org/abs/2406.12793>
pub(super) const GLM4: Facts = Facts {
    name: "glm4",
    models: "GLM 4, 9B and 32B",
    norms: LayerNorms::AROUND,
    feed_forward: FeedForward::Fused(Glu::Silu),
    ..LLAMA
};

/// <https://arxiv.org/abs/2501.00656>
pub(super) const OLMO2: Facts = Facts {
    name: "olmo2",
    models: "OLMo 2 and 3",
    norms: LayerNorms::BEHIND,
    head_norms: HeadNorms::Whole,
    windows: Some(WindowRules { scaled: false, ..WINDOWS }),
    ..QWEN2
};

/// <https://arxiv.org/abs/2507.11407>
pub(super) const EXAONE4: Facts = Facts {
    name: "exaone4",
    models: "EXAONE 4",
    norms: LayerNorms::BEHIND,
    head_norms: HeadNorms::Each,
    windows: Some(WINDOWS),
    turned: Turned::Windowed,
    ..QWEN2
};

/// Command R and R+.
pub(super) const COMMAND_R: Facts = Facts {
    name: "command-r",
    models: "Command R and R+, Aya Expanse",
    norm: Norm::Mean,
    norms: LayerNorms::SHARED,
    head_norms: HeadNorms::OwnWeights,
    residual: Residual::Parallel,
    scales: Scales::Logits,
    ..LLAMA
};

/// <https://arxiv.org/abs/2504.00698>
pub(super) const COHERE2: Facts = Facts {
    name: "cohere2",
    models: "Command R7B and A, Tiny Aya",
    head_norms: HeadNorms::Nothing,
    windows: Some(WINDOWS),
    turned: Turned::Windowed,
    ..COMMAND_R
};

pub(super) const MUSE_GLIMMER: Facts = Facts {
    name: "muse-glimmer",
    models: "Muse Glimmer",
    norms: LayerNorms::AROUND,
    post_epsilon: Some(1e-8),
    norms_embedding: true,
    head_norms: HeadNorms::Each,
    windows: Some(WINDOWS),
    turned: Turned::Windowed,
    attention_gate: AttentionGate::Matrix,
    scales: Scales::Logits,
    logit_cap: Some(0.0),
    ..LLAMA
};

/// <https://arxiv.org/abs/2402.17834>
pub(super) const STABLELM: Facts = Facts {
    name: "stablelm",
    models: "StableLM 2 and 3B",
    norm: Norm::Mean,
    head_norms: HeadNorms::OwnWeights,
    residual: Residual::ParallelWithoutNorm,
    ..QWEN2
};

/// <https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf>
pub(super) const GPT2: Facts = Facts {
    name: "gpt2",
    models: "GPT-2",
    norm: Norm::Mean,
    positions: Positions::Embedded,
    feed_forward: FeedForward::Plain(Unary::Gelu),
    fused_qkv: true,
    biased: true,
    ..Facts::PLAIN
};

/// <https://arxiv.org/abs/2305.06161>
pub(super) const STARCODER: Facts = Facts { name: "starcoder", models: "StarCoder, SantaCoder", ..GPT2 };

/// <https://arxiv.org/abs/2402.19173>
pub(super) const STARCODER2: Facts =
    Facts { name: "starcoder2", models: "StarCoder 2", positions: NEOX, fused_qkv: false, ..GPT2 };

/// <https://arxiv.org/abs/2204.06745>
pub(super) const GPTNEOX: Facts = Facts {
    name: "gptneox",
    models: "GPT-NeoX, Pythia, Dolly",
    positions: NEOX,
    residual: Residual::ParallelByKey,
    ..GPT2
};

/// <https://arxiv.org/abs/2402.16819>
pub(super) const NEMOTRON: Facts = Facts {
    name: "nemotron",
    models: "Nemotron 4, Minitron",
    feed_forward: FeedForward::Squared(Unary::Relu),
    ..STARCODER2
};

pub(super) const PHI2: Facts = Facts {
    name: "phi2",
    models: "Phi 1.5 and 2",
    norms: LayerNorms::SHARED,
    residual: Residual::Parallel,
    ..STARCODER2
};

/// <https://arxiv.org/abs/2403.08295>
pub(super) const GEMMA: Facts = Facts {
    name: "gemma",
    models: "Gemma 1, CodeGemma",
    positions: NEOX,
    feed_forward: FeedForward::Gated(Glu::Gelu),
    scales: Scales::RootOfWidth,
    ..Facts::PLAIN
};

/// <https://arxiv.org/abs/2408.00118>
pub(super) const GEMMA2: Facts = Facts {
    name: "gemma2",
    models: "Gemma 2",
    norms: LayerNorms::AROUND,
    windows: Some(WindowRules { period: 2, default: Some(4096), ..WINDOWS }),
    attention_cap: Some(50.0),
    logit_cap: Some(30.0),
    scaled_by_width_at: Some(46), // the model of 27 billion weights
    ..GEMMA
};

/// <https://arxiv.org/abs/2503.19786>
pub(super) const GEMMA3: Facts = Facts {
    name: "gemma3",
    models: "Gemma 3, text only",
    norms: LayerNorms::AROUND,
    head_norms: HeadNorms::Each,
    windows: Some(WindowRules { period: 6, base: Some(10_000.0), scaled: false, ..WINDOWS }),
    logit_cap: Some(0.0),
    scaled_by_width_at: Some(62), // the model of 27 billion weights
    ..GEMMA
};

pub(super) const GEMMA4: Facts = Facts {
    name: "gemma4",
    models: "Gemma 4, text only",
    norms_values: true,
    unscaled: true,
    factors_in_windows: false,
    scaled_by_width_at: None,
    experts: ExpertRules { beside_dense: true, ..ExpertRules::PLAIN },
    ..GEMMA3
};
