//! Grammars: which tokens may come next, and what is refused.

mod calls;
mod fuzzed;
mod gbnf;
mod generating;
mod hostile;
mod matching;
mod schemas;
#[path = "../models/spoiled.rs"]
mod spoiled;
mod support;
