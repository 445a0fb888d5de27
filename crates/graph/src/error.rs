//! Errors of building, ordering and reading graphs.

use crate::{NodeId, OpError, TensorId};

/// Why a graph, an order, or a file is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A node's op does not accept its operands.
    #[error("{op} for `{name}` ({node})")]
    Op {
        /// The node that would have been added.
        node: NodeId,
        /// Its op.
        op: String,
        /// The result's name.
        name: String,
        /// What is wrong.
        source: OpError,
    },
    /// A leaf cannot be described.
    #[error("leaf `{name}`")]
    Leaf {
        /// Its name.
        name: String,
        /// What is wrong.
        source: OpError,
    },
    /// A node writes into storage that is only read.
    #[error("{op} ({node}) writes into the weight `{name}`; declare it as a state")]
    WritesWeight {
        /// The writing node.
        node: NodeId,
        /// Its op.
        op: String,
        /// The weight's name.
        name: String,
    },
    /// An id of another graph.
    #[error("tensor {tensor} is not in this graph of {tensors} tensors")]
    ForeignTensor {
        /// The id.
        tensor: TensorId,
        /// How many tensors there are.
        tensors: usize,
    },
    /// More tensors than 32-bit ids can number.
    #[error("a graph holds at most {} tensors", u32::MAX)]
    Full,
    /// An order names a node that does not exist.
    #[error("position {position} of the order names node {node}, the graph has {nodes}")]
    NoSuchNode {
        /// Position in the list.
        position: usize,
        /// The number found there.
        node: i64,
        /// How many nodes there are.
        nodes: usize,
    },
    /// An order names a node twice.
    #[error("the order names {node} twice")]
    Repeated {
        /// The node.
        node: NodeId,
    },
    /// An order runs a node before, or without, another that it needs.
    #[error("the order runs {node} without {needs} before it")]
    TooEarly {
        /// The node that runs too early.
        node: NodeId,
        /// What must come first.
        needs: NodeId,
    },
    /// Malformed text.
    #[cfg(feature = "serde")]
    #[error("line {line}, column {column}: {message}")]
    Json {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the reader says.
        message: String,
    },
    /// A file of another version.
    #[cfg(feature = "serde")]
    #[error("version {found} of the format, expected {expected}")]
    Version {
        /// The file's.
        found: u32,
        /// The one that can be read.
        expected: u32,
    },
    /// A file's tensor is both a leaf and a node's result, or neither.
    #[cfg(feature = "serde")]
    #[error("tensor {index} (`{name}`) must be either a leaf without inputs or an op")]
    NeitherLeafNorNode {
        /// Its position.
        index: usize,
        /// Its name.
        name: String,
    },
    /// A file's tensor does not agree with what its node computes.
    #[cfg(feature = "serde")]
    #[error("tensor {tensor} (`{name}`) is written as {written}, its node computes {computed}")]
    Disagrees {
        /// The tensor.
        tensor: TensorId,
        /// Its name.
        name: String,
        /// Description in the file.
        written: String,
        /// Description computed.
        computed: String,
    },
}
