//! One line of a ggml graph file. Unused keys are ignored.

use std::borrow::Cow;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) label: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) buffers: Vec<Buffer<'a>>,
    #[serde(borrow)]
    pub(super) tensors: Vec<Tensor<'a>>,
    /// Tensor and buffer.
    #[serde(rename = "leafs")]
    pub(super) leaves: Vec<(usize, usize)>,
    /// Tensor and buffer, in the order of execution.
    pub(super) nodes: Vec<(usize, usize)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Buffer<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    pub(super) alignment: u64,
    pub(super) max_size: u64,
    /// Position of the first buffer of the same type; both share an arena.
    pub(super) same_as: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tensor<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) op: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    pub(super) dtype: Cow<'a, str>,
    pub(super) ne: [u64; 4],
    pub(super) nb: [u64; 4],
    pub(super) bytes: u64,
    /// -1 for none.
    pub(super) view_src: i64,
    pub(super) view_offs: u64,
    pub(super) input: bool,
    pub(super) output: bool,
    pub(super) external: bool,
    pub(super) inplace: bool,
    pub(super) src: Vec<usize>,
}
