//! Transformers with a mixture of experts.

use super::dense::{ERNIE4_5, GRANITE, HUNYUAN_DENSE, LLAMA, NEOX, OLMO2, QWEN2, QWEN3, WINDOWS};
use super::facts::{
    Classifier, ExpertHidden, ExpertRules, Facts, HeadNorms, LayerNorms, Mixers, Turned, WindowRules,
};
use crate::config::Gating;

pub(super) const SIGMOID: ExpertRules = ExpertRules { gating: Gating::Sigmoid, ..ExpertRules::PLAIN };

pub(super) const UNNORMALIZED: ExpertRules = ExpertRules { normalized: false, ..ExpertRules::PLAIN };

const PER_USED: ExpertHidden = ExpertHidden::FeedForwardPerUsed;

/// <https://arxiv.org/abs/2505.09388>
pub(super) const QWEN3MOE: Facts = Facts {
    name: "qwen3moe",
    models: "Qwen 3 with experts",
    experts: ExpertRules { hidden: PER_USED, ..ExpertRules::PLAIN },
    classifier: Classifier::Tanh,
    ..QWEN3
};

pub(super) const QWEN3VLMOE: Facts =
    Facts { name: "qwen3vlmoe", models: "Qwen 3 VL with experts, text only", ..QWEN3MOE };

pub(super) const QWEN2MOE: Facts = Facts {
    name: "qwen2moe",
    models: "Qwen 1.5 and 2 with experts",
    experts: ExpertRules { hidden: PER_USED, ..UNNORMALIZED },
    ..QWEN2
};

/// <https://arxiv.org/abs/2409.02060>
pub(super) const OLMOE: Facts = Facts {
    name: "olmoe",
    models: "OLMoE",
    norms: LayerNorms::BEFORE,
    windows: None,
    experts: UNNORMALIZED,
    ..OLMO2
};

pub(super) const GRANITEMOE: Facts =
    Facts { name: "granitemoe", models: "Granite 3 and 4 with experts", ..GRANITE };

pub(super) const HUNYUAN_MOE: Facts = Facts { name: "hunyuan-moe", models: "Hunyuan A13B", ..HUNYUAN_DENSE };

pub(super) const ERNIE4_5_MOE: Facts =
    Facts { name: "ernie4_5-moe", models: "ERNIE 4.5 with experts", ..ERNIE4_5 };

/// <https://arxiv.org/abs/2508.06471>
pub(super) const GLM4MOE: Facts = Facts {
    name: "glm4moe",
    models: "GLM 4.5, 4.6 and 4.7",
    norms: LayerNorms::RENAMED,
    head_norms: HeadNorms::EachIfThere,
    experts: ExpertRules { normalized: false, ..SIGMOID },
    ..QWEN2
};

pub(super) const MINIMAX_M2: Facts = Facts {
    name: "minimax-m2",
    models: "MiniMax M2",
    head_norms: HeadNorms::Whole,
    experts: SIGMOID,
    ..QWEN2
};

/// <https://arxiv.org/abs/2508.10925>
pub(super) const GPT_OSS: Facts = Facts {
    name: "gpt-oss",
    models: "gpt-oss",
    norms: LayerNorms::RENAMED,
    positions: NEOX,
    windows: Some(WindowRules { period: 2, ..WINDOWS }),
    experts: ExpertRules { gating: Gating::SoftmaxOfChosen, clamped: true, ..UNNORMALIZED },
    ..QWEN2
};

pub(super) const DOTS1: Facts = Facts {
    name: "dots1",
    models: "dots.llm1",
    experts: ExpertRules { normalized: false, ..SIGMOID },
    classifier: Classifier::Tanh,
    ..QWEN3
};

pub(super) const LLAMA4: Facts = Facts {
    name: "llama4",
    models: "Llama 4, text only, up to 8192 tokens",
    head_norms: HeadNorms::TurnedWithoutWeight,
    turned: Turned::AllBut(4),
    chunk: Some(8192),
    experts: ExpertRules { weighs_input: true, normalized: false, ..SIGMOID },
    ..LLAMA
};

/// <https://arxiv.org/abs/2401.06066>
pub(super) const DEEPSEEK: Facts =
    Facts { name: "deepseek", models: "DeepSeek MoE 16B", experts: UNNORMALIZED, ..LLAMA };

/// <https://arxiv.org/abs/2405.04434>
pub(super) const DEEPSEEK2: Facts = Facts {
    name: "deepseek2",
    models: "DeepSeek V2 to V3.1 and R1, Kimi K2, GLM 4.7 Flash",
    mixers: Mixers::Latent,
    experts: ExpertRules { sigmoid_at: &[[47, 154_880], [48, 154_880]], ..UNNORMALIZED }, // GLM 4.7 Flash
    ..LLAMA
};

pub(super) const MISTRAL4: Facts =
    Facts { name: "mistral4", models: "Mistral Large 3, Mistral Small 4", ..DEEPSEEK2 };
