//! Allocators, plans and tensor sets as callers see them.

mod bad_input;
mod golden;
mod hooks;
mod property;
mod regions;
mod replanning;
mod scenarios;
mod support;
mod tampering;
