//! What architectures differ in. [`Facts::PLAIN`] is the transformer of Llama; the others say where they differ from it or
//! from each other.

use orlop_graph::{Glu, RopeMode};

use crate::draft::FeedForward;

/// How an architecture's layers are wired, which of its keys count, and what its files hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// `general.architecture`, which is also the prefix of its keys.
    pub(crate) name: &'static str,
    /// Well-known models of it.
    pub(crate) models: &'static str,
    /// What mixes tokens.
    pub(crate) mixers: Mixers,
    pub(crate) norm: Norm,
    pub(crate) norms: LayerNorms,
    pub(crate) head_norms: HeadNorms,
    pub(crate) positions: Positions,
    pub(crate) windows: Option<WindowRules>,
    pub(crate) feed_forward: FeedForward,
    /// Whether `ffn_*.scale` tensors count. Some files have them although llama.cpp does not use them.
    pub(crate) scales_feed_forward: bool,
    /// How large an expert is, if no key says so.
    pub(crate) expert_hidden: ExpertHidden,
    pub(crate) embedding_scale: EmbeddingScale,
    /// Whether `final_logit_softcapping` counts. Other files may have the key without meaning it.
    pub(crate) caps_logits: bool,
    /// The number of layers of a model whose attention is scaled by the width divided by the heads, not by the size of a
    /// head; its files have no key for it.
    pub(crate) scaled_by_width_at: Option<u64>,
    /// Files hold queries, keys and values in one matrix (`attn_qkv`). Only random models ask.
    pub(crate) fused_qkv: bool,
    /// Files hold a bias for every norm and every product. Only random models ask.
    pub(crate) biased: bool,
}

impl Facts {
    /// The [transformer](https://arxiv.org/abs/2302.13971) of Llama. Its files have permuted queries and keys, so that
    /// neighbouring elements are turned together.
    pub(crate) const PLAIN: Facts = Facts {
        name: "llama",
        models: "",
        mixers: Mixers::Attention,
        norm: Norm::Rms,
        norms: LayerNorms::BEFORE,
        head_norms: HeadNorms::Nothing,
        positions: Positions::Rope(RopeMode::Normal),
        windows: None,
        feed_forward: FeedForward::Gated(Glu::Silu),
        scales_feed_forward: true,
        expert_hidden: ExpertHidden::FeedForward,
        embedding_scale: EmbeddingScale::One,
        caps_logits: false,
        scaled_by_width_at: None,
        fused_qkv: false,
        biased: false,
    };
}

/// What mixes the tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixers {
    Attention,
    /// [Selective state spaces](https://arxiv.org/abs/2405.21060), and no feed-forward part.
    StateSpace,
}

/// Which norm is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norm {
    /// [RMSNorm](https://arxiv.org/abs/1910.07467): divides by the root mean square.
    Rms,
    /// [LayerNorm](https://arxiv.org/abs/1607.06450): subtracts the mean first.
    Mean,
}

/// The norms of a layer, by their names in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerNorms {
    /// Before the tokens are mixed.
    pub(crate) mixer: Option<&'static str>,
    /// Behind that, before the residual is added.
    pub(crate) mixed: Option<&'static str>,
    /// Before the feed-forward part.
    pub(crate) feed: Option<&'static str>,
    /// Behind that, before the residual is added.
    pub(crate) fed: Option<&'static str>,
}

impl LayerNorms {
    /// Before both parts.
    pub(crate) const BEFORE: LayerNorms =
        LayerNorms { mixer: Some("attn_norm"), mixed: None, feed: Some("ffn_norm"), fed: None };
    /// Before and behind both parts.
    pub(crate) const AROUND: LayerNorms =
        LayerNorms { mixed: Some("post_attention_norm"), fed: Some("post_ffw_norm"), ..LayerNorms::BEFORE };
}

/// What happens to queries and keys besides being turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    Nothing,
    /// Each head is normed, before it is turned.
    Each,
}

/// How a model knows where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// Queries and keys are turned ([RoPE](https://arxiv.org/abs/2104.09864)); the mode says which elements go together.
    Rope(RopeMode),
    /// A table of embeddings (`position_embd`).
    Embedded,
}

/// Sliding windows in some layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WindowRules {
    /// One layer of so many sees everything, if `attention.sliding_window_pattern` does not say which.
    pub(crate) period: u64,
    /// RoPE's base in layers with a window, if `rope.freq_base_swa` does not say it. Without one, it is that of the others.
    pub(crate) base: Option<f32>,
}

/// The default size of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertHidden {
    /// The size of the feed-forward part.
    FeedForward,
    /// That size divided by the number of experts that a token uses.
    FeedForwardPerUsed,
}

/// The factor of embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmbeddingScale {
    One,
    /// The square root of the width.
    RootOfWidth,
}
