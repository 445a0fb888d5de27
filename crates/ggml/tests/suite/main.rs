//! The exported functions, over a ggml of our own.

mod bad_input;
mod contexts;
mod host;
mod plans;
mod random;
mod reports;
mod rig;
mod scenarios;
