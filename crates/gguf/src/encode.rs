//! Encoding of metadata.

use crate::{Array, Error, MAX_NESTING, Metadata, MetadataValue};

pub(crate) fn metadata(out: &mut Vec<u8>, metadata: &Metadata) -> Result<(), Error> {
    for (key, value) in metadata.iter() {
        string(out, key.as_bytes());
        out.extend(value.value_type().id().to_le_bytes());
        self::value(out, value).ok_or_else(|| Error::Nesting { key: key.to_owned() })?;
    }
    Ok(())
}

pub(crate) fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// `None` if arrays are nested too deeply.
fn value(out: &mut Vec<u8>, value: &MetadataValue) -> Option<()> {
    match value {
        MetadataValue::U8(value) => out.push(*value),
        MetadataValue::I8(value) => out.extend(value.to_le_bytes()),
        MetadataValue::U16(value) => out.extend(value.to_le_bytes()),
        MetadataValue::I16(value) => out.extend(value.to_le_bytes()),
        MetadataValue::U32(value) => out.extend(value.to_le_bytes()),
        MetadataValue::I32(value) => out.extend(value.to_le_bytes()),
        MetadataValue::F32(value) => out.extend(value.to_le_bytes()),
        MetadataValue::Bool(value) => out.push(u8::from(*value)),
        MetadataValue::String(value) => string(out, value.as_bytes()),
        MetadataValue::Array(value) => return array(out, value, 1),
        MetadataValue::U64(value) => out.extend(value.to_le_bytes()),
        MetadataValue::I64(value) => out.extend(value.to_le_bytes()),
        MetadataValue::F64(value) => out.extend(value.to_le_bytes()),
    }
    Some(())
}

fn array(out: &mut Vec<u8>, array: &Array, depth: usize) -> Option<()> {
    if depth > MAX_NESTING {
        return None;
    }
    out.extend(array.element_type().id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(items) => out.extend(items),
        Array::I8(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::U16(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I16(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::U32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::F32(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::Bool(items) => out.extend(items.iter().map(|item| u8::from(*item))),
        Array::String(items) => items.iter().for_each(|item| string(out, item)),
        Array::Array(items) => {
            for item in items {
                self::array(out, item, depth + 1)?;
            }
        }
        Array::U64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::I64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
        Array::F64(items) => out.extend(items.iter().flat_map(|item| item.to_le_bytes())),
    }
    Some(())
}
