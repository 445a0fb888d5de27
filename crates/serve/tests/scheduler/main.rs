//! The scheduler on a fake engine.
#![allow(missing_docs)]

mod fake;
mod properties;
mod rules;
