//! The default model on a GPU, in part and as a whole, against the CPU. Any adapter will do; `cargo xtask test` makes
//! sure that there is one.

mod commands;
mod layers;
mod objects;
mod support;
#[allow(dead_code)] // the tests of models need more of it
#[path = "../model/with_model.rs"]
mod with_model;
