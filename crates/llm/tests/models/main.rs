//! Whole models: logits, memory, several devices, bad input.

mod adapters;
mod arches;
mod caches;
mod chat;
mod devices;
mod embeddings;
mod experts;
mod failures;
mod importance;
mod invariance;
mod likeliest;
mod made;
mod memory;
mod perplexity;
mod placing;
mod plannings;
mod random_calls;
mod reference;
mod refusals;
mod remote;
mod repacking;
mod saved;
mod sequences;
mod speculate;
mod spoiled;
mod support;
mod text;

/// Some tests count what their thread allocates.
#[global_allocator]
static ALLOCATOR: orlop_testkit::CountingAllocator = orlop_testkit::CountingAllocator;
