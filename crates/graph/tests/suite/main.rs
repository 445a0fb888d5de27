//! The crate as its users see it: what each op accepts, how graphs are built, ordered, written and read.

mod builder;
mod cost;
mod dependencies;
mod dice;
mod dot;
mod elements;
mod hostile;
mod infer;
#[cfg(feature = "serde")]
mod json;
mod order;
mod overwrite;
mod results;
mod storage;
