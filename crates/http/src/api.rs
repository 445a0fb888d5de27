//! The APIs: what requests say, and how answers are written.

pub(crate) mod answer;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod conversation;
pub(crate) mod embeddings;
pub(crate) mod fields;
pub(crate) mod generic_tools;
pub(crate) mod live;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod native;
pub(crate) mod openapi;
pub(crate) mod report;
pub(crate) mod responses;
pub(crate) mod sampling;
pub(crate) mod stream;
pub(crate) mod structure;

#[cfg(test)]
mod tests;
