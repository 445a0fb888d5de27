//! ggml's RPC protocol, as `ggml-rpc-server` of [llama.cpp](https://github.com/ggml-org/llama.cpp) speaks it: devices of other
//! machines, and a server for them.
//!
//! - [`codec`] has the messages as values, for every version of a table.
//! - [`RpcDevice`] is a device of a server, to be used like any other.
//! - [`RpcServer`] serves devices to clients of the protocol.
#![warn(clippy::unwrap_used)]
#![deny(unsafe_code)]

mod address;
mod client;
pub mod codec;
mod error;
mod server;
mod timed;

pub use address::RpcAddress;
pub use client::{RpcDevice, RpcOptions};
pub use error::RpcError;
pub use server::{Refusal, RpcLimits, RpcServer, RpcServerEvent};
