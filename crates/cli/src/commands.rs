//! One file per command, with its arguments.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod embed;
pub(crate) mod imatrix;
pub(crate) mod inspect;
pub(crate) mod logits;
pub(crate) mod man;
pub(crate) mod perplexity;
pub(crate) mod plan;
pub(crate) mod pull;
pub(crate) mod quantize;
pub(crate) mod rerank;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod serve_rpc;
pub(crate) mod synth;
pub(crate) mod tokenize;
