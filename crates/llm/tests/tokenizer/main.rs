//! Tokenizers and chat templates, compared with the libraries they come from.

mod bad_input;
mod chat;
mod families;
mod fixture;
mod fuzzed;
mod long_input;
mod more;
mod special;
#[path = "../models/spoiled.rs"]
mod spoiled;
