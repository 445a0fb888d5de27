//! Errors of opening a device.

/// A device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A limit of the adapter is below the minimum of the kernels.
    #[error("{adapter} supports {found} {limit}, but {needed} are needed")]
    Limit {
        /// The adapter's name.
        adapter: String,
        /// The limit.
        limit: &'static str,
        /// Its value.
        found: u64,
        /// The minimum.
        needed: u64,
    },
    /// The driver cannot open the adapter.
    #[error("cannot open {adapter}: {reason}")]
    Open {
        /// The adapter's name.
        adapter: String,
        /// The driver's error.
        reason: String,
    },
}
