//! Remote devices: each device of a server is an Orlop device.
//!
//! - An endpoint ([`endpoint`]) is one connection. Commands are collected and sent in one write when an answer is needed, when
//!   another server is waited for, or when they are many. Everything on a server is ordered by its connection, so a queue
//!   has nothing to wait for: work is done when the next answer has come.
//! - A buffer ([`memory`]) remembers the small pieces that the host wrote last. Reads of them need no server, and equal writes
//!   are not sent again.
//! - A program ([`program`]) is the bytes of a graph. Attention needs a mask there ([`masks`]); how far the cache is filled
//!   decides its width, so a program is sent anew when that grows beyond a step, and repeated by number otherwise.

mod canary;
mod device;
mod endpoint;
mod known;
mod lower;
mod masks;
mod memory;
mod program;
mod queue;
mod support;

pub use device::{RpcDevice, RpcOptions};
