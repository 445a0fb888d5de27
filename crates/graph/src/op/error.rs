//! Why an op refuses its operands or parameters.

use crate::{DIMS, DType, DescError};

/// Why an op does not accept its operands or parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Too few or too many operands.
    #[error("takes {expected} operands, {given} were given")]
    Operands {
        /// How many it takes.
        expected: &'static str,
        /// How many there were.
        given: usize,
    },
    /// An operand's element type does not fit.
    #[error("operand {operand} is {dtype}, expected {expected}")]
    DType {
        /// Position of the operand.
        operand: usize,
        /// Its element type.
        dtype: DType,
        /// What is accepted.
        expected: &'static str,
    },
    /// An operand's extents do not fit.
    #[error("operand {operand} has extents {extents:?}: {rule}")]
    Extents {
        /// Position of the operand.
        operand: usize,
        /// Its extents.
        extents: [u64; DIMS],
        /// The rule that they break.
        rule: &'static str,
    },
    /// An operand has gaps or permuted dimensions where none are allowed.
    #[error("operand {operand} must be contiguous")]
    NotContiguous {
        /// Position of the operand.
        operand: usize,
    },
    /// A parameter is out of range.
    #[error("parameter {name}: {rule}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A view or patch ends outside its storage.
    #[error("ends at byte {end} of a storage of {bytes}")]
    OutsideStorage {
        /// First byte after it.
        end: u64,
        /// Size of the storage in bytes.
        bytes: u64,
    },
    /// The result cannot be described.
    #[error(transparent)]
    Desc(#[from] DescError),
}
