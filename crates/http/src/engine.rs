//! The engine's thread, and how connections talk to it.

pub(crate) mod embed_loop;
pub(crate) mod engine_loop;
pub(crate) mod generation;
pub(crate) mod job;
pub(crate) mod lane;
pub(crate) mod live;
pub(crate) mod mailbox;
pub(crate) mod paged_model;
pub(crate) mod ring;

mod sync;
#[cfg(test)]
mod tests;
