//! Replies.

use super::bytes::Fields;
use super::{CodecError, Dialect, RpcVersion, command};

/// Bytes that the reply to a command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyLength {
    /// There is none.
    Nothing,
    /// This many, which may be 0: then only the length comes.
    Exactly(u64),
    /// As many as were asked for.
    Asked,
}

/// Bytes that the reply to a command has.
///
/// # Errors
/// [`CodecError::UnknownCommand`].
pub fn reply_length(dialect: &Dialect, number: u8) -> Result<ReplyLength, CodecError> {
    use ReplyLength::{Asked, Exactly, Nothing};
    super::request_length(dialect, number)?;
    Ok(match number {
        command::ALLOC_BUFFER | command::GET_DEVICE_MEMORY => Exactly(16),
        command::GET_ALIGNMENT
        | command::GET_MAX_SIZE
        | command::BUFFER_GET_BASE
        | command::GET_ALLOC_SIZE => Exactly(8),
        command::SET_TENSOR_HASH | command::COPY_TENSOR => Exactly(1),
        command::HELLO => Exactly(if dialect.capabilities { 28 } else { 3 }),
        command::DEVICE_COUNT => Exactly(4),
        command::GET_TENSOR => Asked,
        command::SET_TENSOR | command::GRAPH_COMPUTE | command::GRAPH_RECOMPUTE => Nothing,
        // FREE_BUFFER, BUFFER_CLEAR, INIT_TENSOR, MEMSET_TENSOR.
        _ if dialect.answers_all => Exactly(0),
        _ => Nothing,
    })
}

/// The bit of HELLO's padding by which a server says that everything behind its answer is encrypted.
pub const ENCRYPTED: u8 = 1;

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcReply<'a> {
    /// To HELLO.
    Hello {
        /// The server's version.
        version: RpcVersion,
        /// A byte that llama.cpp sends as 0 and ignores; [`ENCRYPTED`] from a server that asks for a key.
        padding: u8,
        /// What the server's transport can do; absent before 4.0.
        capabilities: [u8; 24],
    },
    /// Done.
    Done,
    /// A count.
    Count(u32),
    /// A size or an address.
    Number(u64),
    /// A handle and a size, or free and total bytes.
    Pair(u64, u64),
    /// Yes or no.
    Flag(bool),
    /// A tensor's bytes.
    Data(&'a [u8]),
}

impl<'a> RpcReply<'a> {
    /// Reads the payload of a reply to a command.
    ///
    /// # Errors
    /// [`CodecError::Length`], [`CodecError::UnknownCommand`].
    pub fn parse(dialect: &Dialect, number: u8, payload: &'a [u8]) -> Result<RpcReply<'a>, CodecError> {
        let given = payload.len() as u64;
        match reply_length(dialect, number)? {
            ReplyLength::Asked => return Ok(RpcReply::Data(payload)),
            ReplyLength::Exactly(bytes) if bytes == given => {}
            ReplyLength::Exactly(bytes) => return Err(length(number, given, bytes)),
            ReplyLength::Nothing => return Err(length(number, given, 0)),
        }
        let mut fields = Fields::new(payload);
        Ok(match given {
            28 | 3 => {
                let [major, minor, patch] = fields.array();
                let version = RpcVersion { major, minor, patch };
                RpcReply::Hello { version, padding: fields.u8(), capabilities: fields.array() }
            }
            16 => RpcReply::Pair(fields.u64(), fields.u64()),
            8 => RpcReply::Number(fields.u64()),
            4 => RpcReply::Count(fields.u32()),
            1 => RpcReply::Flag(fields.u8() != 0),
            _ => RpcReply::Done,
        })
    }

    /// Appends its length and payload.
    pub fn write(&self, dialect: &Dialect, out: &mut Vec<u8>) {
        let length_at = out.len();
        out.extend(0u64.to_le_bytes());
        let begin = out.len();
        match self {
            RpcReply::Hello { version, padding, capabilities } => {
                out.extend([version.major, version.minor, version.patch]);
                if dialect.capabilities {
                    out.push(*padding);
                    out.extend(capabilities);
                }
            }
            RpcReply::Done => {}
            RpcReply::Count(count) => out.extend(count.to_le_bytes()),
            RpcReply::Number(number) => out.extend(number.to_le_bytes()),
            RpcReply::Pair(first, second) => {
                out.extend(first.to_le_bytes());
                out.extend(second.to_le_bytes());
            }
            RpcReply::Flag(flag) => out.push(u8::from(*flag)),
            RpcReply::Data(bytes) => out.extend(*bytes),
        }
        let length = (out.len() - begin) as u64;
        out[length_at..begin].copy_from_slice(&length.to_le_bytes());
    }
}

fn length(number: u8, given: u64, expected: u64) -> CodecError {
    let name = command::NAMES.get(usize::from(number)).copied().unwrap_or("a command");
    CodecError::Length { command: name, given, expected: expected.to_string() }
}
