//! Serves a language model over HTTP, with the APIs of OpenAI and Anthropic and parts of llama.cpp's.
//!
//! One thread owns the engine, the [scheduler](orlop_serve::Scheduler) and the samplers: the one that calls
//! [`HttpServer::run`]. Another one serves all connections. What is generated passes from one to the other in bounded rings:
//! the engine never waits for a reader, and a reader that is slow only makes its own sequence pause.
//!
//! Every number of a request is checked against one table of bounds, and every request that cannot be answered is told so
//! before anything is sent. A connection that is closed cancels its requests, in the queue as in the middle of an answer.
#![warn(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod api;
mod api_error;
mod bounds;
mod engine;
mod error;
mod event_log;
mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod metrics;
mod model;
mod net;
mod options;
mod page;
mod routes;
mod server;

pub use bounds::ServerBounds;
pub use error::ServerError;
pub use model::{CachePlan, LoadModel, LoadedModel, ServedEmbedder, ServedModel, with_sequences};
pub use options::{ServerEvent, ServerObserver, ServerOptions};
pub use server::{HttpServer, Stopper};
