//! The Rust examples of the README and the guide, as documentation tests.

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../../../docs/src/guide/library.md")]
struct Library;

#[doc = include_str!("../../../docs/src/guide/from-ggml.md")]
struct FromGgml;
