//! Requests: their numbers, their lengths, and their payloads.

use super::bytes::Fields;
use super::{CodecError, Dialect, GraphMessage, RECORD_BYTES, SOURCES, TensorRecord};

/// Numbers of commands.
#[allow(missing_docs)] // the names are the protocol's own
pub mod command {
    pub const ALLOC_BUFFER: u8 = 0;
    pub const GET_ALIGNMENT: u8 = 1;
    pub const GET_MAX_SIZE: u8 = 2;
    pub const BUFFER_GET_BASE: u8 = 3;
    pub const FREE_BUFFER: u8 = 4;
    pub const BUFFER_CLEAR: u8 = 5;
    pub const SET_TENSOR: u8 = 6;
    pub const SET_TENSOR_HASH: u8 = 7;
    pub const GET_TENSOR: u8 = 8;
    pub const COPY_TENSOR: u8 = 9;
    pub const GRAPH_COMPUTE: u8 = 10;
    pub const GET_DEVICE_MEMORY: u8 = 11;
    pub const INIT_TENSOR: u8 = 12;
    pub const GET_ALLOC_SIZE: u8 = 13;
    pub const HELLO: u8 = 14;
    pub const DEVICE_COUNT: u8 = 15;
    pub const GRAPH_RECOMPUTE: u8 = 16;
    pub const MEMSET_TENSOR: u8 = 17;

    pub(crate) const NAMES: [&str; 18] = [
        "ALLOC_BUFFER",
        "GET_ALIGNMENT",
        "GET_MAX_SIZE",
        "BUFFER_GET_BASE",
        "FREE_BUFFER",
        "BUFFER_CLEAR",
        "SET_TENSOR",
        "SET_TENSOR_HASH",
        "GET_TENSOR",
        "COPY_TENSOR",
        "GRAPH_COMPUTE",
        "GET_DEVICE_MEMORY",
        "INIT_TENSOR",
        "GET_ALLOC_SIZE",
        "HELLO",
        "DEVICE_COUNT",
        "GRAPH_RECOMPUTE",
        "MEMSET_TENSOR",
    ];
}

/// Bytes that a payload may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestLength {
    /// This many.
    Exactly(u64),
    /// This many, and data.
    AtLeast(u64),
}

/// Bytes that the payload of a command may have, before it is read.
///
/// # Errors
/// [`CodecError::UnknownCommand`].
pub fn request_length(dialect: &Dialect, number: u8) -> Result<RequestLength, CodecError> {
    use RequestLength::{AtLeast, Exactly};
    const RECORD: u64 = RECORD_BYTES as u64;
    Ok(match number {
        command::ALLOC_BUFFER => Exactly(12),
        command::GET_ALIGNMENT
        | command::GET_MAX_SIZE
        | command::GET_DEVICE_MEMORY
        | command::GRAPH_RECOMPUTE => Exactly(4),
        command::BUFFER_GET_BASE | command::FREE_BUFFER => Exactly(8),
        command::BUFFER_CLEAR => Exactly(9),
        command::SET_TENSOR => AtLeast(RECORD + 8 + u64::from(dialect.store_flag)),
        command::SET_TENSOR_HASH | command::GET_TENSOR => Exactly(RECORD + 16),
        command::COPY_TENSOR => Exactly(2 * RECORD),
        command::GRAPH_COMPUTE => AtLeast(12),
        command::INIT_TENSOR => Exactly(RECORD),
        command::GET_ALLOC_SIZE => Exactly(4 + (1 + SOURCES as u64) * RECORD),
        command::HELLO => Exactly(if dialect.capabilities { 24 } else { 0 }),
        command::DEVICE_COUNT => Exactly(0),
        command::MEMSET_TENSOR if dialect.memset => Exactly(RECORD + 17),
        _ => return Err(CodecError::UnknownCommand { command: number, version: dialect.version }),
    })
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the protocol's fields, named as they are
pub enum RpcRequest<'a> {
    /// Must be the first.
    Hello {
        capabilities: [u8; 24],
    },
    DeviceCount,
    Alignment {
        device: u32,
    },
    MaxSize {
        device: u32,
    },
    DeviceMemory {
        device: u32,
    },
    AllocBuffer {
        device: u32,
        bytes: u64,
    },
    BufferBase {
        buffer: u64,
    },
    FreeBuffer {
        buffer: u64,
    },
    ClearBuffer {
        buffer: u64,
        value: u8,
    },
    SetTensor {
        tensor: Box<TensorRecord>,
        store: bool,
        offset: u64,
        data: &'a [u8],
    },
    SetTensorHash {
        tensor: Box<TensorRecord>,
        offset: u64,
        hash: u64,
    },
    GetTensor {
        tensor: Box<TensorRecord>,
        offset: u64,
        bytes: u64,
    },
    MemsetTensor {
        tensor: Box<TensorRecord>,
        offset: u64,
        bytes: u64,
        value: u8,
    },
    CopyTensor {
        from: Box<TensorRecord>,
        to: Box<TensorRecord>,
    },
    InitTensor {
        tensor: Box<TensorRecord>,
    },
    AllocSize {
        device: u32,
        tensor: Box<TensorRecord>,
        sources: Vec<Option<TensorRecord>>,
    },
    Compute(GraphMessage),
    Recompute {
        device: u32,
    },
}

impl<'a> RpcRequest<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// [`CodecError::UnknownCommand`], [`CodecError::Length`].
    pub fn parse(dialect: &Dialect, number: u8, payload: &'a [u8]) -> Result<RpcRequest<'a>, CodecError> {
        let given = payload.len() as u64;
        let wrong = match request_length(dialect, number)? {
            RequestLength::Exactly(bytes) => (given != bytes).then(|| bytes.to_string()),
            RequestLength::AtLeast(bytes) => (given < bytes).then(|| format!("at least {bytes}")),
        };
        if let Some(expected) = wrong {
            return Err(CodecError::Length { command: command::NAMES[usize::from(number)], given, expected });
        }
        let mut fields = Fields::new(payload);
        let f = &mut fields;
        let record = |f: &mut Fields<'_>| Box::new(TensorRecord::read(f));
        Ok(match number {
            command::ALLOC_BUFFER => RpcRequest::AllocBuffer { device: f.u32(), bytes: f.u64() },
            command::GET_ALIGNMENT => RpcRequest::Alignment { device: f.u32() },
            command::GET_MAX_SIZE => RpcRequest::MaxSize { device: f.u32() },
            command::BUFFER_GET_BASE => RpcRequest::BufferBase { buffer: f.u64() },
            command::FREE_BUFFER => RpcRequest::FreeBuffer { buffer: f.u64() },
            command::BUFFER_CLEAR => RpcRequest::ClearBuffer { buffer: f.u64(), value: f.u8() },
            command::SET_TENSOR => {
                let tensor = record(f);
                let store = dialect.store_flag && f.u8() != 0;
                let offset = f.u64();
                RpcRequest::SetTensor { tensor, store, offset, data: fields.rest() }
            }
            command::SET_TENSOR_HASH => {
                RpcRequest::SetTensorHash { tensor: record(f), offset: f.u64(), hash: f.u64() }
            }
            command::GET_TENSOR => {
                RpcRequest::GetTensor { tensor: record(f), offset: f.u64(), bytes: f.u64() }
            }
            command::COPY_TENSOR => RpcRequest::CopyTensor { from: record(f), to: record(f) },
            command::GRAPH_COMPUTE => RpcRequest::Compute(GraphMessage::parse(payload)?),
            command::GET_DEVICE_MEMORY => RpcRequest::DeviceMemory { device: f.u32() },
            command::INIT_TENSOR => RpcRequest::InitTensor { tensor: record(f) },
            command::GET_ALLOC_SIZE => {
                let (device, tensor) = (f.u32(), record(f));
                let source = |_| Some(TensorRecord::read(f)).filter(|source| source.id != 0);
                RpcRequest::AllocSize { device, tensor, sources: (0..SOURCES).map(source).collect() }
            }
            command::HELLO => RpcRequest::Hello { capabilities: f.array() },
            command::DEVICE_COUNT => RpcRequest::DeviceCount,
            command::GRAPH_RECOMPUTE => RpcRequest::Recompute { device: f.u32() },
            // `request_length` knows no other.
            _ => {
                RpcRequest::MemsetTensor { tensor: record(f), offset: f.u64(), bytes: f.u64(), value: f.u8() }
            }
        })
    }

    /// Its command.
    pub fn command(&self) -> u8 {
        match self {
            RpcRequest::Hello { .. } => command::HELLO,
            RpcRequest::DeviceCount => command::DEVICE_COUNT,
            RpcRequest::Alignment { .. } => command::GET_ALIGNMENT,
            RpcRequest::MaxSize { .. } => command::GET_MAX_SIZE,
            RpcRequest::DeviceMemory { .. } => command::GET_DEVICE_MEMORY,
            RpcRequest::AllocBuffer { .. } => command::ALLOC_BUFFER,
            RpcRequest::BufferBase { .. } => command::BUFFER_GET_BASE,
            RpcRequest::FreeBuffer { .. } => command::FREE_BUFFER,
            RpcRequest::ClearBuffer { .. } => command::BUFFER_CLEAR,
            RpcRequest::SetTensor { .. } => command::SET_TENSOR,
            RpcRequest::SetTensorHash { .. } => command::SET_TENSOR_HASH,
            RpcRequest::GetTensor { .. } => command::GET_TENSOR,
            RpcRequest::MemsetTensor { .. } => command::MEMSET_TENSOR,
            RpcRequest::CopyTensor { .. } => command::COPY_TENSOR,
            RpcRequest::InitTensor { .. } => command::INIT_TENSOR,
            RpcRequest::AllocSize { .. } => command::GET_ALLOC_SIZE,
            RpcRequest::Compute(_) => command::GRAPH_COMPUTE,
            RpcRequest::Recompute { .. } => command::GRAPH_RECOMPUTE,
        }
    }

    /// Its command in words.
    pub fn name(&self) -> &'static str {
        command::NAMES[usize::from(self.command())]
    }

    /// Appends its command, length and payload.
    pub fn write(&self, dialect: &Dialect, out: &mut Vec<u8>) {
        self.write_head(dialect, out);
        if let RpcRequest::SetTensor { data, .. } = self {
            out.extend(*data);
        }
    }

    /// As [`RpcRequest::write`], without the data of SET_TENSOR, which follows.
    pub fn write_head(&self, dialect: &Dialect, out: &mut Vec<u8>) {
        out.push(self.command());
        let length_at = out.len();
        out.extend(0u64.to_le_bytes());
        let begin = out.len();
        let mut behind = 0;
        match self {
            RpcRequest::Hello { capabilities } if dialect.capabilities => out.extend(capabilities),
            RpcRequest::Hello { .. } | RpcRequest::DeviceCount => {}
            RpcRequest::Alignment { device }
            | RpcRequest::MaxSize { device }
            | RpcRequest::DeviceMemory { device }
            | RpcRequest::Recompute { device } => out.extend(device.to_le_bytes()),
            RpcRequest::AllocBuffer { device, bytes } => {
                out.extend(device.to_le_bytes());
                out.extend(bytes.to_le_bytes());
            }
            RpcRequest::BufferBase { buffer } | RpcRequest::FreeBuffer { buffer } => {
                out.extend(buffer.to_le_bytes());
            }
            RpcRequest::ClearBuffer { buffer, value } => {
                out.extend(buffer.to_le_bytes());
                out.push(*value);
            }
            RpcRequest::SetTensor { tensor, store, offset, data } => {
                tensor.write(out);
                if dialect.store_flag {
                    out.push(u8::from(*store));
                }
                out.extend(offset.to_le_bytes());
                behind = data.len();
            }
            RpcRequest::SetTensorHash { tensor, offset, hash: second }
            | RpcRequest::GetTensor { tensor, offset, bytes: second } => {
                tensor.write(out);
                out.extend(offset.to_le_bytes());
                out.extend(second.to_le_bytes());
            }
            RpcRequest::MemsetTensor { tensor, offset, bytes, value } => {
                tensor.write(out);
                out.extend(offset.to_le_bytes());
                out.extend(bytes.to_le_bytes());
                out.push(*value);
            }
            RpcRequest::CopyTensor { from, to } => {
                from.write(out);
                to.write(out);
            }
            RpcRequest::InitTensor { tensor } => tensor.write(out),
            RpcRequest::AllocSize { device, tensor, sources } => {
                out.extend(device.to_le_bytes());
                tensor.write(out);
                for source in (0..SOURCES).map(|slot| sources.get(slot)) {
                    match source {
                        Some(Some(source)) => source.write(out),
                        _ => out.extend([0; RECORD_BYTES]),
                    }
                }
            }
            RpcRequest::Compute(graph) => graph.write(out),
        }
        let length = (out.len() - begin + behind) as u64;
        out[length_at..begin].copy_from_slice(&length.to_le_bytes());
    }
}
