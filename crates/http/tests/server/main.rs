//! A server with a small random model, over real sockets.

mod bounds;
mod cancels;
mod chat;
mod client;
mod completions;
mod drafts;
mod embeddings;
mod guards;
mod losses;
mod messages;
mod models;
mod native;
mod page;
mod plan;
mod responses;
mod slow;
mod structured;
mod support;
