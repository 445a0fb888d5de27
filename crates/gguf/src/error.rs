//! Errors of reading and writing.

use std::io;
use std::path::PathBuf;
use std::str::Utf8Error;

use orlop_graph::{DIMS, DescError};

use crate::{MAX_NESTING, VERSION, ValueType};

/// A file is invalid, a value is missing, or a file cannot be written.
///
/// Byte positions count from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened or mapped.
    #[error("{}: cannot open the file", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A mapped file could no longer be read.
    #[error(
        "{}: the file can no longer be read (it has become shorter, or its disk fails); load it again",
        .path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
    /// A part of a split file is invalid.
    #[error("in the part {}", .path.display())]
    Part {
        /// The part.
        path: PathBuf,
        /// Its error.
        source: Box<Error>,
    },

    /// The file does not start with the GGUF magic.
    #[error("not a GGUF file: it starts with the bytes {:02x?}", .0)]
    NotGguf([u8; 4]),
    /// The file is big-endian.
    #[error(
        "the file is GGUF version {version} in big-endian byte order; only little-endian files are supported"
    )]
    BigEndian {
        /// Its version.
        version: u32,
    },
    /// The version is not supported.
    #[error("the file is GGUF version {0}; only versions 2 and {VERSION} are supported")]
    Version(u32),
    /// The file is truncated.
    #[error("the file ends within {place}: {needed} bytes are needed at byte {at}, {left} are left")]
    Ends {
        /// What was being read.
        place: String,
        /// Position in the file.
        at: u64,
        /// Bytes needed.
        needed: u64,
        /// Bytes left.
        left: u64,
    },
    /// A count exceeds the rest of the file.
    #[error("{place} claims {count} items at byte {at}, too many for the {left} bytes that are left")]
    Count {
        /// What was being read.
        place: String,
        /// The count.
        count: u64,
        /// Position in the file.
        at: u64,
        /// Bytes left.
        left: u64,
    },

    /// A key is empty.
    #[error("key number {index} is empty")]
    EmptyKey {
        /// Its index among the keys.
        index: u64,
    },
    /// A key is not UTF-8.
    #[error("key number {index} is not UTF-8")]
    KeyText {
        /// Its index among the keys.
        index: u64,
        /// The first invalid byte.
        source: Utf8Error,
    },
    /// A key occurs twice.
    #[error("duplicate key `{0}`")]
    DuplicateKey(String),
    /// A value has an unknown type.
    #[error("the value of `{key}` has the unknown type {id}")]
    UnknownValueType {
        /// The key.
        key: String,
        /// The type's id.
        id: u32,
    },
    /// Arrays are nested too deeply.
    #[error("the value of `{key}` has arrays nested deeper than {MAX_NESTING} levels")]
    Nesting {
        /// The key.
        key: String,
    },
    /// `general.alignment` is not a power of two.
    #[error("the alignment {0} is not a power of two")]
    Alignment(u32),

    /// A tensor's name is not UTF-8.
    #[error("the name of tensor number {index} is not UTF-8")]
    TensorName {
        /// Its index among the tensors.
        index: u64,
        /// The first invalid byte.
        source: Utf8Error,
    },
    /// Two tensors have the same name.
    #[error("two tensors are named `{0}`")]
    DuplicateTensor(String),
    /// A tensor has too many dimensions.
    #[error("tensor `{tensor}` has {dimensions} dimensions, more than {DIMS}")]
    Dimensions {
        /// Its name.
        tensor: String,
        /// Their number.
        dimensions: u32,
    },
    /// A tensor has an unknown element type.
    #[error("tensor `{tensor}` has the unknown element type {id}")]
    UnknownElementType {
        /// Its name.
        tensor: String,
        /// The type's id.
        id: u32,
    },
    /// A tensor's type and extents are inconsistent.
    #[error("tensor `{tensor}` has an invalid type or extents")]
    Tensor {
        /// Its name.
        tensor: String,
        /// The reason.
        source: DescError,
    },
    /// A tensor's offset is misaligned.
    #[error("tensor `{tensor}` has the offset {offset}, which is not a multiple of {alignment}")]
    Misaligned {
        /// Its name.
        tensor: String,
        /// Its offset from the start of the data.
        offset: u64,
        /// The alignment.
        alignment: u32,
    },
    /// A tensor's data exceeds the file.
    #[error(
        "tensor `{tensor}` has {bytes} bytes of data, of which the last {missing} are beyond the end of the file"
    )]
    MissingData {
        /// Its name.
        tensor: String,
        /// Bytes of its data.
        bytes: u64,
        /// Bytes beyond the end of the file.
        missing: u64,
    },
    /// A tensor's offset overflows 64 bits.
    #[error("the offset of tensor `{tensor}` overflows 64 bits")]
    TooFar {
        /// Its name.
        tensor: String,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` share {bytes} bytes of data")]
    Overlap {
        /// The tensor with the lower offset.
        first: String,
        /// The other tensor.
        second: String,
        /// The number of shared bytes.
        bytes: u64,
    },

    /// A key is missing.
    #[error("the key `{0}` is missing")]
    MissingKey(String),
    /// A value has the wrong type.
    #[error("the value of `{key}` has type {found}, expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// The expected type, such as `u32` or `array of strings`.
        expected: &'static str,
        /// The actual type.
        found: String,
    },
    /// An integer does not fit the requested type.
    #[error("the value of `{key}` is {value}, which does not fit {expected}")]
    IntegerRange {
        /// The key.
        key: String,
        /// Its value, or an element of its array.
        value: i128,
        /// The requested type.
        expected: ValueType,
    },
    /// A string is not UTF-8.
    #[error("the value of `{key}` is not UTF-8")]
    NotUtf8 {
        /// The key.
        key: String,
        /// The first invalid byte.
        source: Utf8Error,
    },
    /// A string in an array is not UTF-8.
    #[error("string number {index} of `{key}` is not UTF-8")]
    ItemNotUtf8 {
        /// The key.
        key: String,
        /// Its index in the array.
        index: usize,
        /// The first invalid byte.
        source: Utf8Error,
    },

    /// The name of a part does not match its number.
    #[error(
        "{} is part {} of {count}, so its name must end in -{:05}-of-{count:05}.gguf",
        .path.display(), .number + 1, .number + 1
    )]
    SplitName {
        /// The file.
        path: PathBuf,
        /// `split.no`, which counts from 0.
        number: u32,
        /// `split.count`.
        count: u32,
    },
    /// A part of a split file is missing.
    #[error("the part {} is missing, part {} of {count}", .path.display(), .number + 1)]
    MissingPart {
        /// Its expected path.
        path: PathBuf,
        /// Its number, from 0.
        number: u32,
        /// The number of parts.
        count: u32,
    },
    /// A part of a split file contradicts the others.
    #[error("{} has {key} {found}, expected {expected}", .path.display())]
    SplitMismatch {
        /// The part.
        path: PathBuf,
        /// `split.no`, `split.count` or `split.tensors.count`.
        key: &'static str,
        /// The expected value.
        expected: u64,
        /// The actual value.
        found: u64,
    },
    /// The number of tensors in all parts is wrong.
    #[error("the {parts} parts have {found} tensors, but split.tensors.count is {expected}")]
    SplitTensors {
        /// The number of parts.
        parts: usize,
        /// `split.tensors.count` of the first part.
        expected: u64,
        /// The actual number.
        found: u64,
    },

    /// The data of a tensor to write has the wrong length.
    #[error("tensor `{tensor}` takes {expected} bytes of data, {written} were given")]
    DataLength {
        /// Its name.
        tensor: String,
        /// Bytes of its type and extents.
        expected: u64,
        /// Bytes given; a lower bound if they exceed the expected ones.
        written: u64,
    },
    /// The data of a tensor could not be produced or written.
    #[error("cannot write the data of tensor `{tensor}`")]
    Data {
        /// Its name.
        tensor: String,
        /// The error.
        source: io::Error,
    },
    /// A file of zeros exceeds what the system maps.
    #[error("cannot map {bytes} bytes of zeros")]
    Outline {
        /// Bytes of the file.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the file")]
    Write(#[source] io::Error),
}
