//! The exported functions with a mock ggml.

mod backends;
mod bad_input;
mod contexts;
mod host;
mod plans;
mod random;
mod reports;
mod rig;
mod scenarios;
mod schedule_property;
mod schedules;
