//! Connections: who may ask, and how long they may take.

pub(crate) mod body;
pub(crate) mod guard;
pub(crate) mod listen;
pub(crate) mod signals;
pub(crate) mod timed_io;
