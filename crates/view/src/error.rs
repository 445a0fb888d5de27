//! Errors of drawing.

/// A picture cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The picture has no blocks.
    #[error("`{title}` has no tensors in memory to draw")]
    Empty {
        /// Title of the picture.
        title: String,
    },
    /// The data cannot be serialized.
    #[error("cannot write the picture of `{title}` as JSON: {what}")]
    Json {
        /// Title of the picture.
        title: String,
        /// The serializer's error.
        what: String,
    },
}
