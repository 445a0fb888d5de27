//! The protocol's messages as values, read and written with every length checked.
//!
//! Numbers are little-endian and packed. A request is a command (one byte), the length of its payload and the payload; a
//! reply is a length and a payload. Nothing here touches a socket: these are functions on bytes.

mod bytes;
mod graph;
mod ops;
mod record;
mod reply;
mod request;
mod version;

pub use graph::GraphMessage;
pub(crate) use ops::can_be_written;
pub use ops::{Decoded, GgmlOp, OpNumbers, OpRefusal, SourceOrder};
pub use record::{RECORD_BYTES, SOURCES, TensorRecord};
pub use reply::{ENCRYPTED, ReplyLength, RpcReply, reply_length};
pub use request::{RequestLength, RpcRequest, command, request_length};
pub use version::{Dialect, RpcVersion};

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A version that is not in the table, such as a newer one or a fork's.
    #[error("protocol version {version} is not known (known: {known})")]
    UnknownVersion {
        /// What the server said.
        version: RpcVersion,
        /// The table.
        known: String,
    },
    /// A command that the version does not have.
    #[error("command {command} is not known in version {version}")]
    UnknownCommand {
        /// Its number.
        command: u8,
        /// The version spoken.
        version: RpcVersion,
    },
    /// A payload of a length that its command cannot have.
    #[error("{command} with {given} bytes, {expected} are needed")]
    Length {
        /// The command.
        command: &'static str,
        /// Bytes there are.
        given: u64,
        /// Bytes there must be, in words.
        expected: String,
    },
    /// A field with a value that it cannot have.
    #[error("{command}: {field} is {value}, {rule}")]
    Field {
        /// The command.
        command: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        rule: &'static str,
    },
}
