//! Grammars: which tokens may come next, and what is refused.

mod calls;
mod gbnf;
mod generating;
mod hostile;
mod matching;
mod schemas;
mod support;
