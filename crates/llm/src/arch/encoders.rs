//! Encoders: every token sees those behind it, too, and the result is an embedding of a text. GELU is that of the models' own
//! code, with the error function; llama.cpp uses the tanh approximation.

use orlop_graph::{Glu, Unary};

use super::dense::{GEMMA3, NEOX, WINDOWS};
use super::facts::{Classifier, Facts, HeadNorms, LayerNorms, Norm, Positions, Residual, WindowRules};
use crate::draft::FeedForward;

/// <https://arxiv.org/abs/1810.04805>
pub(super) const BERT: Facts = Facts {
    name: "bert",
    models: "BERT, MiniLM, BGE, E5, MXBAI, Snowflake Arctic Embed, XLM-RoBERTa",
    norm: Norm::Mean,
    norms: LayerNorms { mixer: None, mixed: None, feed: None, fed: None },
    positions: Positions::Embedded,
    feed_forward: FeedForward::Plain(Unary::GeluErf),
    residual: Residual::NormedSums,
    encoder: true,
    ..Facts::PLAIN
};

/// <https://arxiv.org/abs/2402.01613>
pub(super) const NOMIC_BERT: Facts = Facts {
    name: "nomic-bert",
    models: "Nomic Embed Text 1 and 1.5",
    positions: NEOX,
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
    positions: NEOX,
    windows: Some(WindowRules { period: 3, base: Some(10_000.0), first_sees_all: true, ..WINDOWS }),
    feed_forward: FeedForward::Fused(Glu::GeluErf),
    classifier: Classifier::Mean,
    residual: Residual::Series,
    ..BERT
};

/// <https://arxiv.org/abs/2509.20354>
pub(super) const GEMMA_EMBEDDING: Facts =
    Facts { name: "gemma-embedding", models: "EmbeddingGemma", encoder: true, ..GEMMA3 };
