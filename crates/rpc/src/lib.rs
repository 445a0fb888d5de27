//! ggml's RPC protocol, as `ggml-rpc-server` of [llama.cpp](https://github.com/ggml-org/llama.cpp) speaks it: devices of other
//! machines, and a server for them.
//!
//! - [`codec`] has the messages as values, for every version of a table.
//! - [`RpcDevice`] is a device of a server, to be used like any other.
//! - [`RpcServer`] serves devices to clients of the protocol.
//! - With an [`RpcKey`] on both sides, they know each other, and what passes between them is encrypted.
#![warn(clippy::unwrap_used)]
#![deny(unsafe_code)]

mod address;
mod channel;
mod client;
pub mod codec;
mod error;
mod key;
mod server;
mod timed;

pub use address::RpcAddress;
pub use client::{RpcDevice, RpcOptions};
pub use error::RpcError;
pub use key::RpcKey;
pub use server::{Refusal, RpcAccess, RpcLimits, RpcServer, RpcServerEvent};
