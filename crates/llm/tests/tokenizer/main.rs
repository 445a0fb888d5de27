//! Tokenizers and chat templates, compared with the libraries they come from.
#![allow(clippy::unwrap_used)] // whatever is here is a test

mod bad_input;
mod chat;
mod families;
mod fixture;
mod long_input;
mod special;
