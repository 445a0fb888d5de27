/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing of it lies in memory.
    #[error("`{title}` has nothing that takes memory, so there is nothing to draw")]
    Empty {
        /// What was to be drawn.
        title: String,
    },
    /// The data cannot be written as JSON.
    #[error("the picture of `{title}` cannot be written as JSON: {what}")]
    Json {
        /// What was to be drawn.
        title: String,
        /// What the writer says.
        what: String,
    },
}
