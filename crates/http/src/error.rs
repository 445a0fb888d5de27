//! Why a server does not start, or ends.

use std::net::SocketAddr;

/// Why a server does not start, or ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} ({source})")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// Anyone could use it from other machines.
    #[error("{address} can be reached from other machines, and no key is needed")]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The thread of the connections cannot be started.
    #[error("cannot start the server's thread ({0})")]
    Thread(std::io::Error),
    /// A key that no request could have.
    #[error("a key must have at least one character, and printable ASCII characters only")]
    BadKey,
    /// The first model cannot be loaded.
    #[error("{model} cannot be loaded ({source})")]
    Load {
        /// Its name.
        model: String,
        /// Why.
        source: Box<orlop_llm::Error>,
    },
    /// There is no model, or two have the same name.
    #[error("a server needs models with different names")]
    Names,
    /// A device is lost, and the model cannot be loaded without it.
    #[error("a device is lost, and the model cannot be loaded on those that are left ({0})")]
    Lost(Box<orlop_llm::Error>),
}
