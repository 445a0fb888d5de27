//! Whole models: logits, memory, several devices, bad input.
#![allow(clippy::unwrap_used)] // whatever is here is a test

mod arches;
mod chat;
mod devices;
mod likeliest;
mod memory;
mod perplexity;
mod plannings;
mod reference;
mod refusals;
mod repacking;
mod sequences;
mod support;
mod text;
