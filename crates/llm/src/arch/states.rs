//! Models that keep a state of each sequence in some or all layers.

use orlop_graph::Unary;

use super::dense::{GRANITE, QWEN2, QWEN3, WINDOWS};
use super::experts::{SIGMOID, UNNORMALIZED};
use super::facts::{
    AttentionGate, Classifier, ExpertHidden, ExpertRules, Facts, LayerNorms, Mixers, Norm, Turned,
    WindowRules,
};
use crate::config::Mixer;
use crate::draft::FeedForward;

/// <https://arxiv.org/abs/2312.00752>
pub(super) const MAMBA: Facts = Facts {
    name: "mamba",
    models: "Mamba 1, Falcon Mamba",
    mixers: Mixers::Only(Mixer::Mamba1),
    ..Facts::PLAIN
};

/// <https://arxiv.org/abs/2405.21060>
pub(super) const MAMBA2: Facts =
    Facts { name: "mamba2", models: "Mamba 2", mixers: Mixers::Only(Mixer::StateSpace), ..MAMBA };

/// <https://arxiv.org/abs/2403.19887>
pub(super) const JAMBA: Facts = Facts {
    name: "jamba",
    models: "Jamba",
    mixers: Mixers::Hybrid(Mixer::Mamba1),
    turned: Turned::None,
    experts: UNNORMALIZED,
    ..Facts::PLAIN
};

pub(super) const GRANITEHYBRID: Facts = Facts {
    name: "granitehybrid",
    models: "Granite 4 with state spaces",
    mixers: Mixers::Hybrid(Mixer::StateSpace),
    ..GRANITE
};

/// <https://arxiv.org/abs/2507.22448>
pub(super) const FALCON_H1: Facts =
    Facts { name: "falcon-h1", models: "Falcon H1", mixers: Mixers::Both, ..QWEN2 };

/// <https://arxiv.org/abs/2504.03624>
pub(super) const NEMOTRON_H: Facts = Facts {
    name: "nemotron_h",
    models: "Nemotron H, Nemotron Nano 2",
    mixers: Mixers::OnePart,
    norms: LayerNorms { feed: Some("attn_norm"), ..LayerNorms::BEFORE },
    turned: Turned::None,
    feed_forward: FeedForward::Squared(Unary::Relu),
    experts: ExpertRules { normalized: false, hidden: ExpertHidden::FeedForwardPerUsed, ..SIGMOID },
    ..Facts::PLAIN
};

pub(super) const NEMOTRON_H_MOE: Facts = Facts { name: "nemotron_h_moe", models: "Nemotron 3", ..NEMOTRON_H };

/// <https://arxiv.org/abs/2511.23404>
pub(super) const LFM2: Facts = Facts {
    name: "lfm2",
    models: "LFM 2",
    mixers: Mixers::Hybrid(Mixer::ShortConvolution),
    output_norm: "token_embd_norm",
    windows: Some(WindowRules { period: 0, ..WINDOWS }),
    classifier: Classifier::Tanh,
    ..QWEN3
};

pub(super) const LFM2MOE: Facts =
    Facts { name: "lfm2moe", models: "LFM 2 with experts", experts: SIGMOID, windows: None, ..LFM2 };

/// <https://arxiv.org/abs/2412.06464>
pub(super) const QWEN35: Facts = Facts {
    name: "qwen35",
    models: "Qwen 3.5 and 3.6, text only",
    mixers: Mixers::Interleaved(Mixer::DeltaNet),
    norms: LayerNorms::RENAMED,
    attention_gate: AttentionGate::InQueries,
    experts: ExpertRules { hidden: ExpertHidden::FeedForwardPerUsed, ..ExpertRules::PLAIN },
    classifier: Classifier::Tanh,
    ..QWEN3
};

pub(super) const QWEN35MOE: Facts =
    Facts { name: "qwen35moe", models: "Qwen 3.5 and 3.6 with experts, text only", ..QWEN35 };

pub(super) const QWEN3NEXT: Facts =
    Facts { name: "qwen3next", models: "Qwen 3 Next", neighbors_share_keys: true, ..QWEN35 };

/// <https://arxiv.org/abs/2503.14456>
pub(super) const RWKV7: Facts = Facts {
    name: "rwkv7",
    models: "RWKV 7",
    mixers: Mixers::Only(Mixer::TimeMix),
    norm: Norm::Mean,
    norms: LayerNorms { feed: Some("attn_norm_2"), ..LayerNorms::BEFORE },
    ..Facts::PLAIN
};
