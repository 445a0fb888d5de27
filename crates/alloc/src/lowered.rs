//! From lowered graphs to usages.
//!
//! A device lowers nodes to steps (`orlop_backend::Steps`); a [`UsageBuilder`] makes a usage of them. The caller
//! says where each tensor's **root** lies ([`Home`]): in an arena of the usage, or elsewhere. Whole graphs without a
//! device ([`plain`]), the splits of a schedule (`orlop-sched`) and the steps of one split by themselves
//! ([`StepSequence`]) all go this way.

pub(crate) mod plain;
mod sequence;
mod steps;
mod usage_builder;

pub use sequence::StepSequence;
pub use usage_builder::{Held, Home, UsageBuilder};
