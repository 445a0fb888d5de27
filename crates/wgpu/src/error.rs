/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The adapter lacks something that every kernel needs.
    #[error("{adapter} has {limit} {found}, at least {needed} is needed")]
    Limit {
        /// The adapter's name.
        adapter: String,
        /// What it has too little of.
        limit: &'static str,
        /// How much there is.
        found: u64,
        /// How much there must be.
        needed: u64,
    },
    /// The driver does not open the adapter.
    #[error("{adapter} cannot be opened: {reason}")]
    Open {
        /// The adapter's name.
        adapter: String,
        /// What the driver said.
        reason: String,
    },
}
