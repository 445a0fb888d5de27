//! What can go wrong before a remote device or a server exists; afterwards devices say [`DeviceError`].

use orlop_backend::DeviceError;

use crate::codec::CodecError;

/// A server that cannot be used, or an address that cannot be served.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// Not an address.
    #[error("`{text}` is no address: {rule}")]
    Address {
        /// What was given.
        text: String,
        /// What is wrong.
        rule: &'static str,
    },
    /// No connection.
    #[error("cannot connect to {server}: {reason}")]
    Connect {
        /// Its address.
        server: String,
        /// The system's reason.
        reason: String,
    },
    /// Connected, but no answer: ggml's server serves one client at a time, and others wait.
    #[error("{server} does not answer within {seconds} s; it may serve another client")]
    Silent {
        /// Its address.
        server: String,
        /// How long was waited.
        seconds: u64,
    },
    /// It answers something else than the protocol says.
    #[error("{server}: {source}")]
    Protocol {
        /// Its address.
        server: String,
        /// What is wrong.
        source: CodecError,
    },
    /// What a device says.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An address that others reach: the protocol knows neither passwords nor encryption.
    #[error("{address} is not a loopback address, and the protocol has no authentication")]
    NotLoopback {
        /// The address.
        address: String,
    },
    /// A server cannot listen.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: String,
        /// The system's reason.
        reason: String,
    },
}
