//! Clients and servers of this crate with each other, and with peers that misbehave.
#![allow(missing_docs)]

mod conformance;
mod counted;
mod devices;
mod encrypted;
mod faults;
mod messages;
mod mutated;
mod refusals;
mod support;
mod versions;
