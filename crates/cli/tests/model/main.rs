//! Commands that run a model, as their users see them. The default model is fetched once, and kept with what cargo
//! builds unless `ORLOP_CACHE` says where it is.

mod adapters;
mod answers;
mod drafts;
mod embeddings;
mod fit;
mod memory;
mod prompt_cache;
mod refusals;
mod remote;
mod rerankers;
mod sampling;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;
mod trace;
mod with_model;
