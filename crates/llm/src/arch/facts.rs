//! What architectures differ in. Every architecture states every field, so a new field cannot be forgotten.

use orlop_graph::{RopeMode, TensorId};

use crate::Error;
use crate::draft::{FeedForward, GraphDraft};

/// How an architecture's layers are wired, which of its keys count, and what its files hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArchitectureFacts {
    /// `general.architecture`, which is also the prefix of its keys.
    pub(crate) name: &'static str,
    /// Builds the whole graph, from tokens to logits.
    pub(crate) build: fn(&mut GraphDraft<'_>) -> Result<TensorId, Error>,
    /// What mixes tokens.
    pub(crate) mixer: Mixer,
    pub(crate) norm: Norm,
    pub(crate) layer_norms: LayerNorms,
    pub(crate) head_norms: HeadNorms,
    /// Which elements of a head are turned together.
    pub(crate) rope: RopeMode,
    /// Positions have a table of embeddings (`position_embd`) instead of turning heads.
    pub(crate) embeds_positions: bool,
    pub(crate) feed_forward: FeedForward,
    /// Whether `ffn_*.scale` tensors count. Some files have them although llama.cpp does not use them.
    pub(crate) scales_feed_forward: bool,
    /// How large an expert is, if no key says so.
    pub(crate) expert_hidden: ExpertHidden,
    pub(crate) embedding_scale: EmbeddingScale,
    /// Whether `final_logit_softcapping` counts. Other files may have the key without meaning it.
    pub(crate) caps_logits: bool,
    /// Whether `attention.sliding_window` counts.
    pub(crate) has_windows: bool,
    /// The number of layers of a model whose attention is scaled by the width divided by the heads, not by the size of a
    /// head; its files have no key for it.
    pub(crate) scaled_by_width_at: Option<u64>,
    /// Files hold queries, keys and values in one matrix (`attn_qkv`).
    pub(crate) fused_qkv: bool,
    /// Files hold a bias for every norm and every product.
    pub(crate) biased: bool,
}

/// What mixes the tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixer {
    Attention,
    /// A [selective state space](https://arxiv.org/abs/2405.21060), which keeps a state instead of keys and values.
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

/// Where the attention and the feed-forward part of a layer are normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerNorms {
    Before,
    BeforeAndAfter,
}

/// What happens to queries and keys before they are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    Nothing,
    /// Each head is normed.
    Each,
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
