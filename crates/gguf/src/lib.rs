//! GGUF files: typed metadata and named tensors in one file, or in several parts.
//!
//! [`GgufPart`] is one file, mapped or in memory; [`GgufFile`] is all parts of a split one, or the one file there is;
//! [`Writer`] makes files. Versions 2 and 3 in little-endian order are read, version 3 is written.
//!
//! A file is checked as a whole when it is opened: every length, count and offset before it is used, and the
//! place of every tensor. What is opened is therefore whole, and reading a damaged or hostile file gives an
//! [`Error`], never a panic, in memory and time proportional to its size.
//!
//! ```
//! use std::sync::Arc;
//! use orlop_gguf::{File, Writer};
//! use orlop_graph::DType;
//!
//! let mut writer = Writer::new();
//! writer.set("general.name", "a scale")?;
//! writer.tensor("scale", DType::F32, &[2], &[0, 0, 128, 63, 0, 0, 0, 64])?;
//! let mut bytes = Vec::new();
//! writer.write(&mut bytes)?;
//!
//! let file = File::from_bytes(Arc::new(bytes))?;
//! assert_eq!(file.metadata().string("general.name")?, "a scale");
//! let scale = file.tensor("scale").unwrap();
//! assert_eq!(scale.desc.to_string(), "f32[2 1 1 1]");
//! assert_eq!(file.bytes_of(scale), [0, 0, 128, 63, 0, 0, 0, 64]);
//! # Ok::<(), orlop_gguf::Error>(())
//! ```
#![warn(clippy::unwrap_used)]

mod array;
mod cursor;
mod encode;
mod error;
mod file;
mod header;
mod mapping;
mod metadata;
mod model;
mod split_name;
mod strings;
mod tensor;
mod text;
mod value;
mod value_type;
mod writer;

pub use array::Array;
pub use error::Error;
pub use file::GgufPart;
pub use metadata::Metadata;
pub use model::GgufFile;
pub use orlop_graph::SharedBytes;
pub use strings::Strings;
pub use tensor::TensorInfo;
pub use text::Text;
pub use value::MetadataValue;
pub use value_type::ValueType;
pub use writer::Writer;

/// The version that is written.
pub const VERSION: u32 = 3;

/// Where tensors begin, unless `general.alignment` says otherwise: at multiples of this.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// How deep arrays may lie within arrays.
pub const MAX_NESTING: usize = 16;

const MAGIC: [u8; 4] = *b"GGUF";
const ALIGNMENT_KEY: &str = "general.alignment";
