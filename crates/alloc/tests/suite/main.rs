//! Allocators, plans and tensor sets as callers see them.

mod bad_input;
#[cfg(feature = "serde")]
mod fuzzed;
mod golden;
mod hooks;
mod property;
mod regions;
mod replanning;
mod scenarios;
mod support;
mod tampering;
