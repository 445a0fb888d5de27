//! Metadata as bytes.

use crate::{Array, Error, MAX_NESTING, Metadata, Value};

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

/// `None` if arrays lie too deep.
fn value(out: &mut Vec<u8>, value: &Value) -> Option<()> {
    match value {
        Value::U8(value) => out.push(*value),
        Value::I8(value) => out.extend(value.to_le_bytes()),
        Value::U16(value) => out.extend(value.to_le_bytes()),
        Value::I16(value) => out.extend(value.to_le_bytes()),
        Value::U32(value) => out.extend(value.to_le_bytes()),
        Value::I32(value) => out.extend(value.to_le_bytes()),
        Value::F32(value) => out.extend(value.to_le_bytes()),
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::String(value) => string(out, value.as_bytes()),
        Value::Array(value) => return array(out, value, 1),
        Value::U64(value) => out.extend(value.to_le_bytes()),
        Value::I64(value) => out.extend(value.to_le_bytes()),
        Value::F64(value) => out.extend(value.to_le_bytes()),
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
