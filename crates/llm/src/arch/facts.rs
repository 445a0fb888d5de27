//! What architectures differ in. [`Facts::PLAIN`] is the transformer of Llama; the others say where they differ from it or
//! from each other.

use orlop_graph::{Glu, RopeMode};

use crate::config::{Gating, Mixer};
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
    /// The epsilon of norms behind a part, where it is not that of the others.
    pub(crate) post_epsilon: Option<f32>,
    /// The norm before the logits, by its name in files.
    pub(crate) output_norm: &'static str,
    /// Embeddings are normed, without a weight.
    pub(crate) norms_embedding: bool,
    pub(crate) head_norms: HeadNorms,
    /// Values are normed, without a weight; where the file has no matrix for them, they are made by that of keys.
    pub(crate) norms_values: bool,
    /// Scores are queries times keys, without a factor.
    pub(crate) unscaled: bool,
    /// Factors of RoPE's frequencies count in layers with a window, too.
    pub(crate) factors_in_windows: bool,
    pub(crate) residual: Residual,
    pub(crate) positions: Positions,
    pub(crate) turned: Turned,
    pub(crate) windows: Option<WindowRules>,
    /// Tokens of a chunk, beyond which layers that are turned do not see.
    pub(crate) chunk: Option<u32>,
    pub(crate) attention_gate: AttentionGate,
    /// In delta nets, neighbouring heads of values share a head of keys. Without that, heads of keys follow one another
    /// until all heads of values have one.
    pub(crate) neighbors_share_keys: bool,
    /// The limit of scores (`attn_logit_softcapping`) and its default.
    pub(crate) attention_cap: Option<f32>,
    pub(crate) feed_forward: FeedForward,
    pub(crate) experts: ExpertRules,
    pub(crate) scales: Scales,
    /// Whether `final_logit_softcapping` counts (other files may have the key without meaning it), and its default; 0 for
    /// none.
    pub(crate) logit_cap: Option<f32>,
    /// The number of layers of a model whose attention is scaled by the width divided by the heads, not by the size of a
    /// head; its files have no key for it.
    pub(crate) scaled_by_width_at: Option<u64>,
    pub(crate) classifier: Classifier,
    /// The model makes embeddings of texts, and no text.
    pub(crate) encoder: bool,
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
        models: "Llama 2 and 3, SmolLM 1 and 2, Mistral, TinyLlama; with experts, Mixtral",
        mixers: Mixers::Attention,
        norm: Norm::Rms,
        norms: LayerNorms::BEFORE,
        post_epsilon: None,
        output_norm: "output_norm",
        norms_embedding: false,
        head_norms: HeadNorms::Nothing,
        norms_values: false,
        unscaled: false,
        factors_in_windows: true,
        residual: Residual::Series,
        positions: Positions::Rope(RopeMode::Normal),
        turned: Turned::All,
        windows: None,
        chunk: None,
        attention_gate: AttentionGate::Nothing,
        neighbors_share_keys: false,
        attention_cap: None,
        feed_forward: FeedForward::Gated(Glu::Silu),
        experts: ExpertRules::PLAIN,
        scales: Scales::Nothing,
        logit_cap: None,
        scaled_by_width_at: None,
        classifier: Classifier::Tanh,
        encoder: false,
        fused_qkv: false,
        biased: false,
    };
}

/// How texts are classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Classifier {
    /// By one token, through tanh.
    Tanh,
    /// As that, and the scores become probabilities.
    Probabilities,
    /// By the mean of all tokens, through GELU.
    Mean,
}

/// What mixes the tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixers {
    Attention,
    /// Attention; nothing in layers without heads of queries, and a single matrix in those without heads of keys.
    SomeAttention,
    /// The same in all layers, and no feed-forward part.
    Only(Mixer),
    /// Attention in layers with heads of keys, this in the others.
    Hybrid(Mixer),
    /// Attention in the last layer of every `full_attention_interval`, this in the others, if
    /// `attention.recurrent_layers` does not say which.
    Interleaved(Mixer),
    /// Attention and a state space in every layer.
    Both,
    /// A layer has one part: a feed-forward part if it has a size, or attention if it has heads of keys, or a state space.
    OnePart,
    /// [Latent attention](https://arxiv.org/abs/2405.04434).
    Latent,
}

impl Mixers {
    /// Whether random models can be made of it.
    pub(crate) fn can_be_random(self) -> bool {
        match self {
            Mixers::Attention | Mixers::SomeAttention | Mixers::Hybrid(_) => true,
            Mixers::Only(mixer) => mixer == Mixer::StateSpace,
            Mixers::Interleaved(_) | Mixers::Both | Mixers::OnePart | Mixers::Latent => false,
        }
    }
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
    /// Before both parts; the second is named as if it came behind the first.
    pub(crate) const RENAMED: LayerNorms =
        LayerNorms { feed: Some("post_attention_norm"), ..LayerNorms::BEFORE };
    /// One, before both parts.
    pub(crate) const SHARED: LayerNorms = LayerNorms { feed: None, ..LayerNorms::BEFORE };
    /// Behind both parts.
    pub(crate) const BEHIND: LayerNorms = LayerNorms { mixer: None, feed: None, ..LayerNorms::AROUND };
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
    /// As that, in files that have the weights.
    EachIfThere,
    /// Each head is normed with weights of its own, in files that have them.
    OwnWeights,
    /// Each head is normed after it is turned.
    AfterRope,
    /// As that, without a weight, and only where it is turned. The model of 128 experts has no such norm.
    TurnedWithoutWeight,
    /// All heads are normed as one row, before they are turned.
    Whole,
    /// As that, in files that have the weights.
    WholeIfThere,
}

/// What attention is multiplied with before the output matrix: the sigmoid of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionGate {
    Nothing,
    /// A product (`attn_gate`).
    Matrix,
    /// The second half of each head that the matrix of queries makes.
    InQueries,
}

/// What the feed-forward part works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residual {
    /// The sum of the layer's input and its attention.
    Series,
    /// The layer's input, as attention does. Without a norm of its own it takes that of the attention.
    Parallel,
    /// That, if `use_parallel_residual` is set.
    ParallelByKey,
    /// That, if the file has no norm before the feed-forward part.
    ParallelWithoutNorm,
    /// As in series; sums are normed, and the last of these norms is that of the output.
    NormedSums,
}

/// The layers in which positions turn queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    All,
    /// Those with a window; all, where there is none.
    Windowed,
    None,
    /// All but the last of this many.
    AllBut(usize),
    /// All or none, as `rope.scaling.finetuned` says.
    ByKey,
}

/// How a model knows where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// Queries and keys are turned ([RoPE](https://arxiv.org/abs/2104.09864)); the mode says which elements go together.
    Rope(RopeMode),
    /// A table of embeddings (`position_embd`).
    Embedded,
    /// Scores fall with the distance of two tokens ([ALiBi](https://arxiv.org/abs/2108.12409)).
    Distances,
}

/// Sliding windows in some layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WindowRules {
    /// One layer of this many sees everything, if `attention.sliding_window_pattern` does not say which.
    pub(crate) period: u64,
    /// The window, if `attention.sliding_window` is not there.
    pub(crate) default: Option<u32>,
    /// RoPE's base in layers with a window, if `rope.freq_base_swa` does not say it. Without one, it is that of the others.
    pub(crate) base: Option<f32>,
    /// Whether layers with a window scale positions as the others do.
    pub(crate) scaled: bool,
    /// The first layer of a period sees everything, not the last one. The first of all may have no norm.
    pub(crate) first_sees_all: bool,
}

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpertRules {
    /// How large an expert is, if no key says so.
    pub(crate) hidden: ExpertHidden,
    /// How scores become weights, if `expert_gating_func` does not say it.
    pub(crate) gating: Gating,
    /// Layers and vocabulary of models with sigmoids whose files have no key for it.
    pub(crate) sigmoid_at: &'static [[u64; 2]],
    /// Whether the weights of the chosen are divided by their sum, if `expert_weights_norm` does not say it.
    pub(crate) normalized: bool,
    /// The [clamped gate of gpt-oss](https://arxiv.org/abs/2508.10925).
    pub(crate) clamped: bool,
    /// Experts get their input times their weight, and not the other way round.
    pub(crate) weighs_input: bool,
    /// Layers with experts have a dense part beside them, and norms of their own for both.
    pub(crate) beside_dense: bool,
}

impl ExpertRules {
    pub(crate) const PLAIN: ExpertRules = ExpertRules {
        hidden: ExpertHidden::FeedForward,
        gating: Gating::Softmax,
        sigmoid_at: &[],
        normalized: true,
        clamped: false,
        weighs_input: false,
        beside_dense: false,
    };
}

/// The default size of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertHidden {
    /// The size of the feed-forward part.
    FeedForward,
    /// That size divided by the number of experts that a token uses.
    FeedForwardPerUsed,
}

/// Factors of embeddings, of what is added to the residual, and of logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    Nothing,
    /// Embeddings times the square root of the width.
    RootOfWidth,
    /// `embedding_scale`, `residual_scale`, and `logit_scale`, by which logits are divided.
    Granite,
    /// As those, with [defaults](https://arxiv.org/abs/2404.06395).
    MiniCpm,
    /// Logits times `logit_scale`.
    Logits,
}
