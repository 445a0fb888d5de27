//! The device on whatever adapter there is, software included; `cargo xtask test` makes sure that there is one.

mod conformance;
mod faults;
mod limits;
mod memory;
mod support;
