use std::io;
use std::path::PathBuf;
use std::str::Utf8Error;

use orlop_graph::{DIMS, DescError};

use crate::{MAX_NESTING, VERSION, ValueType};

/// Why a file is refused, a value is not there, or a file cannot be written.
///
/// Bytes are counted from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened or mapped.
    #[error("{} cannot be opened", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// One part of a split file is at fault.
    #[error("in the part {}", .path.display())]
    Part {
        /// The part.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },

    /// The file does not begin as GGUF files do.
    #[error("the file begins with the bytes {:02x?} and is no GGUF file", .0)]
    NotGguf([u8; 4]),
    /// The file was written for big-endian machines.
    #[error("the file is GGUF version {version} in big-endian byte order, only little-endian files are read")]
    BigEndian {
        /// Its version.
        version: u32,
    },
    /// The version is not one that is read.
    #[error("the file is GGUF version {0}, only versions 2 and {VERSION} are read")]
    Version(u32),
    /// The file ends too early.
    #[error("the file ends within {place}: {needed} bytes are needed at byte {at}, {left} are left")]
    Ends {
        /// What was being read.
        place: String,
        /// Where in the file.
        at: u64,
        /// Bytes wanted.
        needed: u64,
        /// Bytes there.
        left: u64,
    },
    /// A count is more than the rest of the file can hold.
    #[error("{place} claims {count} items at byte {at}, too many for the {left} bytes that are left")]
    Count {
        /// What claims it.
        place: String,
        /// How many.
        count: u64,
        /// Where in the file.
        at: u64,
        /// Bytes there.
        left: u64,
    },

    /// A key has no characters.
    #[error("key number {index} is empty")]
    EmptyKey {
        /// Its place among the keys, from 0.
        index: u64,
    },
    /// A key is not UTF-8.
    #[error("key number {index} is not UTF-8")]
    KeyText {
        /// Its place among the keys, from 0.
        index: u64,
        /// Where.
        source: Utf8Error,
    },
    /// A key is there twice.
    #[error("the key `{0}` is there twice")]
    DuplicateKey(String),
    /// A value has a type that does not exist.
    #[error("the value of `{key}` has the unknown type {id}")]
    UnknownValueType {
        /// The key.
        key: String,
        /// The number of the type.
        id: u32,
    },
    /// Arrays lie in arrays too deep.
    #[error("the value of `{key}` has arrays in arrays deeper than {MAX_NESTING} levels")]
    Nesting {
        /// The key.
        key: String,
    },
    /// `general.alignment` makes no sense.
    #[error("the alignment is {0}, which is no power of two")]
    Alignment(u32),

    /// A tensor's name is not UTF-8.
    #[error("the name of tensor number {index} is not UTF-8")]
    TensorName {
        /// Its place among the tensors, from 0.
        index: u64,
        /// Where.
        source: Utf8Error,
    },
    /// Two tensors have one name.
    #[error("two tensors are named `{0}`")]
    DuplicateTensor(String),
    /// A tensor has too many dimensions.
    #[error("tensor `{tensor}` has {dimensions} dimensions, at most {DIMS} are possible")]
    Dimensions {
        /// Its name.
        tensor: String,
        /// How many.
        dimensions: u32,
    },
    /// A tensor has an element type that does not exist.
    #[error("tensor `{tensor}` has the unknown element type {id}")]
    UnknownElementType {
        /// Its name.
        tensor: String,
        /// The number of the type.
        id: u32,
    },
    /// A tensor's type and extents make no sense together.
    #[error("tensor `{tensor}` is impossible")]
    Tensor {
        /// Its name.
        tensor: String,
        /// Why.
        source: DescError,
    },
    /// A tensor begins at the wrong place.
    #[error("tensor `{tensor}` begins {offset} bytes into the data, which is no multiple of {alignment}")]
    Misaligned {
        /// Its name.
        tensor: String,
        /// Where, from the start of the data.
        offset: u64,
        /// What it must be a multiple of.
        alignment: u32,
    },
    /// A tensor's data leaves the file.
    #[error(
        "tensor `{tensor}` has {bytes} bytes of data, of which the last {missing} lie beyond the file's end"
    )]
    MissingData {
        /// Its name.
        tensor: String,
        /// Bytes it has.
        bytes: u64,
        /// Bytes from the end of the file to the end of the tensor.
        missing: u64,
    },
    /// The data's place does not fit 64 bits.
    #[error("the place of tensor `{tensor}` does not fit 64-bit sizes")]
    TooFar {
        /// Its name.
        tensor: String,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` share {bytes} bytes of data")]
    Overlap {
        /// The one that begins first.
        first: String,
        /// The other.
        second: String,
        /// How many.
        bytes: u64,
    },

    /// A key is not there.
    #[error("the key `{0}` is missing")]
    MissingKey(String),
    /// A value has another type than asked for.
    #[error("the value of `{key}` is of type {found} where {expected} is expected")]
    WrongType {
        /// The key.
        key: String,
        /// What was asked for, such as `u32` or `array of strings`.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// An integer does not fit the width asked for.
    #[error("the value of `{key}` is {value}, which does not fit {expected}")]
    IntegerRange {
        /// The key.
        key: String,
        /// Its value, or one in its array.
        value: i128,
        /// What was asked for.
        expected: ValueType,
    },
    /// A string is not UTF-8.
    #[error("the value of `{key}` is not UTF-8")]
    NotUtf8 {
        /// The key.
        key: String,
        /// Where.
        source: Utf8Error,
    },
    /// A string in an array is not UTF-8.
    #[error("string number {index} of `{key}` is not UTF-8")]
    ItemNotUtf8 {
        /// The key.
        key: String,
        /// Its place in the array, from 0.
        index: usize,
        /// Where.
        source: Utf8Error,
    },

    /// A file says that it is one of several, but its name does not say which.
    #[error(
        "{} says it is part {} of {count}, so its name has to end in -{:05}-of-{count:05}.gguf",
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
    /// A part of a split file is not there.
    #[error("the part {} is missing, part {} of {count}", .path.display(), .number + 1)]
    MissingPart {
        /// Where it should be.
        path: PathBuf,
        /// Which, from 0.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// A part of a split file contradicts the others.
    #[error("{} says {key} is {found}, where {expected} is expected", .path.display())]
    SplitMismatch {
        /// The part.
        path: PathBuf,
        /// `split.no`, `split.count` or `split.tensors.count`.
        key: &'static str,
        /// What it has to be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// All parts together do not have the tensors that they should.
    #[error("the {parts} parts hold {found} tensors, where split.tensors.count says {expected}")]
    SplitTensors {
        /// How many parts there are.
        parts: usize,
        /// What the first part says.
        expected: u64,
        /// How many there are.
        found: u64,
    },

    /// A tensor to be written comes with the wrong number of bytes.
    #[error("tensor `{tensor}` takes {expected} bytes of data, {written} were given")]
    DataLength {
        /// Its name.
        tensor: String,
        /// What its type and extents ask for.
        expected: u64,
        /// What there was, or would have been at least.
        written: u64,
    },
    /// The data of a tensor could not be produced or written.
    #[error("the data of tensor `{tensor}` cannot be written")]
    Data {
        /// Its name.
        tensor: String,
        /// What went wrong.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("the file cannot be written")]
    Write(#[source] io::Error),
}
