//! The device on any adapter, including software; `cargo xtask test` installs one.

mod conformance;
mod faults;
mod limits;
mod memory;
mod queues;
mod support;
