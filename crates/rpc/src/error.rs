//! What can go wrong before a remote device or a server exists; afterwards devices say [`DeviceError`].

use orlop_backend::DeviceError;

use crate::codec::{CodecError, RpcVersion};

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
    /// Not a key.
    #[error("a key is 64 hexadecimal digits")]
    BadKey,
    /// The server asks for a key, and none was given.
    #[error("{server} asks for a key")]
    NoKey {
        /// Its address.
        server: String,
    },
    /// A key was given, and the server does not ask for one: nothing is sent to it.
    #[error("{server} does not encrypt, and a key was given")]
    NotEncrypted {
        /// Its address.
        server: String,
    },
    /// The server has another key, or the greeting was changed on its way.
    #[error("{server} has another key")]
    OtherKey {
        /// Its address.
        server: String,
    },
    /// A server with a key and an old version, whose greeting cannot ask for it.
    #[error("protocol version {version} cannot ask for a key")]
    PlainVersion {
        /// The version.
        version: RpcVersion,
    },
    /// An address that others reach, without a key.
    #[error("{address} is not a loopback address, and there is no key")]
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
