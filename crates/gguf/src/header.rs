//! Reads and validates everything before the tensor data.

use std::str;

use orlop_graph::{DIMS, DType, TensorDesc};

use crate::cursor::{Cursor, Fault};
use crate::{
    ALIGNMENT_KEY, Array, DEFAULT_ALIGNMENT, Error, MAGIC, MAX_NESTING, Metadata, MetadataValue, Strings,
    TensorInfo, VERSION, ValueType,
};

/// Minimum bytes of a key and its value.
const MIN_ENTRY: u64 = 8 + 4 + 1;
/// Minimum bytes of a tensor description.
const MIN_TENSOR: u64 = 8 + 4 + 4 + 8;

pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) alignment: u32,
    pub(crate) metadata: Metadata,
    /// In file order, with offsets that are within the file, aligned and disjoint.
    pub(crate) tensors: Vec<TensorInfo>,
    /// Indices of `tensors`, sorted by name.
    pub(crate) by_name: Vec<usize>,
}

/// Reads and validates a header.
pub(crate) fn read(bytes: &[u8]) -> Result<Header, Error> {
    let mut cursor = Cursor::new(bytes);
    let within_header = |fault: Fault| fault.within("the header");
    let magic = cursor.array().map_err(within_header)?;
    if magic != MAGIC {
        return Err(Error::NotGguf(magic));
    }
    let version = cursor.u32().map_err(within_header)?;
    check_version(version)?;
    let tensors = cursor.u64().map_err(within_header)?;
    let entries = cursor.u64().map_err(within_header)?;
    cursor.room(entries, MIN_ENTRY).map_err(|fault| fault.within("the metadata"))?;
    cursor.room(tensors, MIN_TENSOR).map_err(|fault| fault.within("the list of tensors"))?;

    let metadata = read_metadata(&mut cursor, entries)?;
    let alignment = alignment(&metadata)?;
    let mut tensors = read_tensors(&mut cursor, tensors, alignment)?;
    let by_name = sort_by_name(&tensors)?;
    place(&mut tensors, cursor.at(), alignment, bytes.len() as u64)?;
    Ok(Header { version, alignment, metadata, tensors, by_name })
}

fn check_version(version: u32) -> Result<(), Error> {
    match version {
        2 | VERSION => Ok(()),
        _ if (1..=VERSION).contains(&version.swap_bytes()) => {
            Err(Error::BigEndian { version: version.swap_bytes() })
        }
        _ => Err(Error::Version(version)),
    }
}

fn read_metadata(cursor: &mut Cursor<'_>, entries: u64) -> Result<Metadata, Error> {
    let mut metadata = Metadata::new();
    for index in 0..entries {
        let key = cursor.string().map_err(|fault| fault.within(format!("key number {index}")))?;
        let key = str::from_utf8(key).map_err(|source| Error::KeyText { index, source })?;
        if key.is_empty() {
            return Err(Error::EmptyKey { index });
        }
        let value = read_value(cursor).map_err(|fault| fault.in_value_of(key))?;
        metadata.add(key, value)?;
    }
    Ok(metadata)
}

/// The alignment of tensors.
pub(crate) fn alignment(metadata: &Metadata) -> Result<u32, Error> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(MetadataValue::U32(alignment)) if alignment.is_power_of_two() => Ok(*alignment),
        Some(MetadataValue::U32(alignment)) => Err(Error::Alignment(*alignment)),
        Some(value) => Err(Error::WrongType {
            key: ALIGNMENT_KEY.to_owned(),
            expected: ValueType::U32.name(),
            found: value.describe(),
        }),
    }
}

fn read_type(cursor: &mut Cursor<'_>) -> Result<ValueType, Fault> {
    let id = cursor.u32()?;
    ValueType::from_id(id).ok_or(Fault::UnknownValueType(id))
}

fn read_value(cursor: &mut Cursor<'_>) -> Result<MetadataValue, Fault> {
    Ok(match read_type(cursor)? {
        ValueType::U8 => MetadataValue::U8(cursor.array().map(u8::from_le_bytes)?),
        ValueType::I8 => MetadataValue::I8(cursor.array().map(i8::from_le_bytes)?),
        ValueType::U16 => MetadataValue::U16(cursor.array().map(u16::from_le_bytes)?),
        ValueType::I16 => MetadataValue::I16(cursor.array().map(i16::from_le_bytes)?),
        ValueType::U32 => MetadataValue::U32(cursor.u32()?),
        ValueType::I32 => MetadataValue::I32(cursor.array().map(i32::from_le_bytes)?),
        ValueType::F32 => MetadataValue::F32(cursor.array().map(f32::from_le_bytes)?),
        ValueType::Bool => MetadataValue::Bool(cursor.array().map(read_bool)?),
        ValueType::String => MetadataValue::String(cursor.string()?.into()),
        ValueType::Array => MetadataValue::Array(read_array(cursor, 1)?),
        ValueType::U64 => MetadataValue::U64(cursor.u64()?),
        ValueType::I64 => MetadataValue::I64(cursor.array().map(i64::from_le_bytes)?),
        ValueType::F64 => MetadataValue::F64(cursor.array().map(f64::from_le_bytes)?),
    })
}

/// As in C: any non-zero byte is true.
fn read_bool(byte: [u8; 1]) -> bool {
    byte != [0]
}

fn read_array(cursor: &mut Cursor<'_>, depth: usize) -> Result<Array, Fault> {
    if depth > MAX_NESTING {
        return Err(Fault::Nesting);
    }
    let element = read_type(cursor)?;
    let count = cursor.u64()?;
    cursor.room(count, element.least_bytes())?;
    Ok(match element {
        ValueType::U8 => Array::U8(read_items(cursor, count, u8::from_le_bytes)?),
        ValueType::I8 => Array::I8(read_items(cursor, count, i8::from_le_bytes)?),
        ValueType::U16 => Array::U16(read_items(cursor, count, u16::from_le_bytes)?),
        ValueType::I16 => Array::I16(read_items(cursor, count, i16::from_le_bytes)?),
        ValueType::U32 => Array::U32(read_items(cursor, count, u32::from_le_bytes)?),
        ValueType::I32 => Array::I32(read_items(cursor, count, i32::from_le_bytes)?),
        ValueType::F32 => Array::F32(read_items(cursor, count, f32::from_le_bytes)?),
        ValueType::Bool => Array::Bool(read_items(cursor, count, read_bool)?),
        ValueType::String => Array::String(read_strings(cursor, count)?),
        ValueType::Array => {
            // No preallocation: nested counts could claim the same bytes at each depth.
            let mut arrays = Vec::new();
            for _ in 0..count {
                arrays.push(read_array(cursor, depth + 1)?);
            }
            Array::Array(arrays)
        }
        ValueType::U64 => Array::U64(read_items(cursor, count, u64::from_le_bytes)?),
        ValueType::I64 => Array::I64(read_items(cursor, count, i64::from_le_bytes)?),
        ValueType::F64 => Array::F64(read_items(cursor, count, f64::from_le_bytes)?),
    })
}

/// `count` items of `N` bytes each.
fn read_items<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    count: u64,
    item: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, Fault> {
    let bytes = cursor.take(count.saturating_mul(N as u64))?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| item(*bytes)).collect())
}

/// `count` strings; the caller checked that their lengths fit.
fn read_strings(cursor: &mut Cursor<'_>, count: u64) -> Result<Strings, Fault> {
    let mut strings = Strings::with_capacity(usize::try_from(count).unwrap_or(0));
    for _ in 0..count {
        strings.push(cursor.string()?);
    }
    Ok(strings)
}

/// The tensor descriptions, with offsets relative to the start of the data.
fn read_tensors(cursor: &mut Cursor<'_>, count: u64, alignment: u32) -> Result<Vec<TensorInfo>, Error> {
    let mut tensors = Vec::new();
    for index in 0..count {
        let name =
            cursor.string().map_err(|fault| fault.within(format!("the name of tensor number {index}")))?;
        let name = str::from_utf8(name).map_err(|source| Error::TensorName { index, source })?;
        tensors.push(read_tensor(cursor, name, alignment)?);
    }
    Ok(tensors)
}

fn read_tensor(cursor: &mut Cursor<'_>, name: &str, alignment: u32) -> Result<TensorInfo, Error> {
    let within = |fault: Fault| fault.within(format!("the description of tensor `{name}`"));
    let tensor = || name.to_owned();
    let dimensions = cursor.u32().map_err(within)?;
    let mut extents = [1; DIMS];
    let given = usize::try_from(dimensions).ok().and_then(|dimensions| extents.get_mut(..dimensions));
    let Some(given) = given else { return Err(Error::Dimensions { tensor: tensor(), dimensions }) };
    for extent in given {
        *extent = cursor.u64().map_err(within)?;
    }
    let id = cursor.u32().map_err(within)?;
    let offset = cursor.u64().map_err(within)?;
    let dtype = DType::from_gguf_id(id).ok_or_else(|| Error::UnknownElementType { tensor: tensor(), id })?;
    let desc = TensorDesc::contiguous(dtype, &extents)
        .map_err(|source| Error::Tensor { tensor: tensor(), source })?;
    if !offset.is_multiple_of(u64::from(alignment)) {
        return Err(Error::Misaligned { tensor: tensor(), offset, alignment });
    }
    Ok(TensorInfo { name: tensor(), desc, dimensions, offset, bytes: desc.bytes(), part: 0 })
}

pub(crate) fn sort_by_name(tensors: &[TensorInfo]) -> Result<Vec<usize>, Error> {
    let mut by_name: Vec<usize> = (0..tensors.len()).collect();
    by_name.sort_unstable_by(|a, b| tensors[*a].name.cmp(&tensors[*b].name));
    match by_name.array_windows().find(|[a, b]| tensors[*a].name == tensors[*b].name) {
        Some([twin, _]) => Err(Error::DuplicateTensor(tensors[*twin].name.clone())),
        None => Ok(by_name),
    }
}

/// Makes offsets relative to the file, and checks that tensors are within it and disjoint.
fn place(tensors: &mut [TensorInfo], header: u64, alignment: u32, file: u64) -> Result<(), Error> {
    let data = header.checked_next_multiple_of(u64::from(alignment));
    for tensor in &mut *tensors {
        let offset = data.and_then(|data| data.checked_add(tensor.offset));
        let end = offset.and_then(|offset| offset.checked_add(tensor.bytes));
        let (Some(offset), Some(end)) = (offset, end) else {
            return Err(Error::TooFar { tensor: tensor.name.clone() });
        };
        if end > file {
            let tensor_name = tensor.name.clone();
            return Err(Error::MissingData { tensor: tensor_name, bytes: tensor.bytes, missing: end - file });
        }
        tensor.offset = offset;
    }
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().filter(|tensor| tensor.bytes > 0).collect();
    by_offset.sort_unstable_by_key(|tensor| tensor.offset);
    for [first, second] in by_offset.array_windows() {
        let end = first.offset + first.bytes;
        if end > second.offset {
            let bytes = (end - second.offset).min(second.bytes);
            return Err(Error::Overlap { first: first.name.clone(), second: second.name.clone(), bytes });
        }
    }
    Ok(())
}
