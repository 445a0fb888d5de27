//! Why an op's result could not be computed.

use orlop_graph::{DType, OpError, TensorDesc};

/// Why an op's result could not be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpFailure {
    /// A row, expert, state or length in the data is out of range.
    #[error("index {index} of {rows}")]
    BadIndex {
        /// The number found.
        index: i64,
        /// How many there are.
        rows: u64,
    },
    /// Elements of this type cannot be converted.
    #[error("there is no codec for {0}")]
    NoCodec(DType),
    /// The op is none of those that the function computes.
    #[error("this op is not computed here")]
    NotComputed,
    /// The op does not accept these operands.
    #[error(transparent)]
    Operands(#[from] OpError),
    /// The result is asked for with another description than the op gives.
    #[error("the result is {}, the op gives {}", .descs[0], .descs[1])]
    Output {
        /// What was asked for, and what the op gives.
        descs: Box<[TensorDesc; 2]>,
    },
    /// Contents do not have the length that their description says.
    #[error("{given} elements or bytes where {expected} are described")]
    Length {
        /// How many are described.
        expected: u64,
        /// How many there were.
        given: u64,
    },
}
