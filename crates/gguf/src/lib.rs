//! [GGUF] files: typed metadata and named tensors, in one file or in several parts.
//!
//! [`GgufFile`] is a model of one or several parts; [`GgufPart`] is one file, mapped or in memory; [`Writer`] creates
//! files. Versions 2 and 3 in little-endian order are read, version 3 is written.
//!
//! Opening a file validates every length, count and offset. A damaged or hostile file gives an [`Error`], never a
//! panic, in memory and time proportional to its size.
//!
//! [GGUF]: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//!
//! ```
//! use std::sync::Arc;
//! use orlop_gguf::{GgufPart, Writer};
//! use orlop_graph::DType;
//!
//! let mut writer = Writer::new();
//! writer.set("general.name", "a scale")?;
//! writer.tensor("scale", DType::F32, &[2], &[0, 0, 128, 63, 0, 0, 0, 64])?;
//! let mut bytes = Vec::new();
//! writer.write(&mut bytes)?;
//!
//! let file = GgufPart::from_bytes(Arc::new(bytes))?;
//! assert_eq!(file.metadata().string("general.name")?, "a scale");
//! let scale = file.tensor("scale").unwrap();
//! assert_eq!(scale.desc.to_string(), "f32[2 1 1 1]");
//! assert_eq!(file.bytes_of(scale), [0, 0, 128, 63, 0, 0, 0, 64]);
//! # Ok::<(), orlop_gguf::Error>(())
//! ```
#![warn(clippy::unwrap_used)]

mod array;
#[cfg(unix)]
mod bus_error;
mod cursor;
mod encode;
mod error;
mod file;
mod header;
mod mapping;
mod metadata;
mod part;
mod read_speed;
mod split_name;
mod strings;
mod temporary_file;
mod tensor;
mod text;
mod value;
mod value_type;
mod writer;

pub use array::Array;
pub use error::Error;
pub use file::GgufFile;
pub use mapping::handle_bus_errors;
pub use metadata::Metadata;
pub use orlop_graph::SharedBytes;
pub use part::GgufPart;
pub use read_speed::read_speed;
pub use strings::Strings;
pub use temporary_file::TemporaryFile;
pub use tensor::TensorInfo;
pub use text::Text;
pub use value::MetadataValue;
pub use value_type::ValueType;
pub use writer::Writer;

/// The version written.
pub const VERSION: u32 = 3;

/// The alignment of tensors without `general.alignment`.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// Maximum depth of nested arrays.
pub const MAX_NESTING: usize = 16;

const MAGIC: [u8; 4] = *b"GGUF";
const ALIGNMENT_KEY: &str = "general.alignment";
