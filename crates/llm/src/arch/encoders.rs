//! Encoders: every token sees those behind it, too, and the result is an embedding of a text. GELU is that of the models' own
//! code, with the error function; llama.cpp uses the tanh approximation.

use orlop_graph::{Glu, RopeMode, Unary};

use super::facts::{Classifier, EncoderFacts, Facts, HeadNorms, LayerNorms, Norm, Positions, WindowRules};
use crate::draft::FeedForward;

/// Norms behind the sum of each part and its input, and none before it.
const SUMS: EncoderFacts =
    EncoderFacts { embedding_norm: Some("token_embd_norm"), norms_sums: true, first_sees_all: false };

/// <https://arxiv.org/abs/1810.04805>
pub(super) const BERT: Facts = Facts {
    name: "bert",
    models: "BERT, MiniLM, BGE, E5, MXBAI, Snowflake Arctic Embed, XLM-RoBERTa",
    norm: Norm::Mean,
    norms: LayerNorms { mixer: None, mixed: None, feed: None, fed: None },
    positions: Positions::Embedded,
    feed_forward: FeedForward::Plain(Unary::GeluErf),
    encoder: Some(SUMS),
    ..Facts::PLAIN
};

/// <https://arxiv.org/abs/2402.01613>
pub(super) const NOMIC_BERT: Facts = Facts {
    name: "nomic-bert",
    models: "Nomic Embed Text 1 and 1.5",
    positions: Positions::Rope(RopeMode::Neox),
    feed_forward: FeedForward::Gated(Glu::Silu),
    ..BERT
};

/// <https://arxiv.org/abs/2310.19923>
pub(super) const JINA_BERT_V2: Facts = Facts {
    name: "jina-bert-v2",
    models: "Jina Embeddings 2",
    positions: Positions::Distances,
    head_norms: HeadNorms::WholeIfThere,
    feed_forward: FeedForward::ByFile(Glu::GeluErf, Unary::GeluErf),
    ..BERT
};

/// <https://arxiv.org/abs/2412.13663>
pub(super) const MODERN_BERT: Facts = Facts {
    name: "modern-bert",
    models: "ModernBERT, Granite Embedding R2",
    norms: LayerNorms::BEFORE,
    positions: Positions::Rope(RopeMode::Neox),
    windows: Some(WindowRules { period: 3, default: None, base: Some(10_000.0), scaled: true }),
    feed_forward: FeedForward::Fused(Glu::GeluErf),
    classifier: Classifier::Mean,
    encoder: Some(EncoderFacts { norms_sums: false, first_sees_all: true, ..SUMS }),
    ..BERT
};

/// <https://arxiv.org/abs/2509.20354>
pub(super) const GEMMA_EMBEDDING: Facts = Facts {
    name: "gemma-embedding",
    models: "EmbeddingGemma",
    encoder: Some(EncoderFacts { embedding_norm: None, norms_sums: false, ..SUMS }),
    ..super::dense::GEMMA3
};
