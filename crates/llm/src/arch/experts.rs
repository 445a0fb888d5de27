//! Transformers with a mixture of experts.

use super::dense::QWEN3;
use super::facts::{ExpertHidden, Facts};

/// <https://arxiv.org/abs/2505.09388>
pub(super) const QWEN3MOE: Facts = Facts {
    name: "qwen3moe",
    models: "Qwen 3 with experts",
    expert_hidden: ExpertHidden::FeedForwardPerUsed,
    ..QWEN3
};
