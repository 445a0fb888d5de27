//! Tensor graphs as immutable data.
#![forbid(unsafe_code)]

mod dtype;

pub use dtype::{DType, UnknownDType};
