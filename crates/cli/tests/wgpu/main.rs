//! The default model on a GPU, in part and as a whole, against the CPU. Any adapter will do; `cargo xtask test` makes
//! sure that there is one.
#![allow(clippy::unwrap_used)] // whatever is here is a test

mod commands;
mod layers;
mod objects;
mod support;
#[allow(dead_code)] // the tests of models need more of it
#[path = "../model/with_model.rs"]
mod with_model;
