//! Errors of the codecs.

use orlop_graph::DType;

/// Why a row was not converted. The output is untouched in every case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantError {
    /// The type is known and has a size, but no codec.
    #[error("there is no codec for {0}")]
    Unsupported(DType),
    /// The type has a decoder only.
    #[error("{0} can be decoded but not encoded")]
    DecodeOnly(DType),
    /// The elements do not fill their last block.
    #[error("{elements} elements are not a whole number of {dtype} blocks")]
    PartialBlock {
        /// The row's type.
        dtype: DType,
        /// Elements on the `f32` or `f64` side.
        elements: usize,
    },
    /// The byte side has the wrong length for the elements.
    #[error("{elements} elements of {dtype} take {expected} bytes, not {found}")]
    Length {
        /// The row's type.
        dtype: DType,
        /// Elements on the `f32` or `f64` side.
        elements: usize,
        /// Bytes that many elements take.
        expected: u64,
        /// Bytes that were passed.
        found: usize,
    },
    /// The importance of a row is not one number, 0 or more, for each element.
    #[error(
        "importance has {found} numbers for {elements} elements, or some that are negative or not finite"
    )]
    Importance {
        /// Elements of the row.
        elements: usize,
        /// Numbers that were passed.
        found: usize,
    },
}
