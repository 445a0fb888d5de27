//! Metadata values.

use crate::{Array, Text, ValueType};

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the format's own
pub enum MetadataValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(Text),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl MetadataValue {
    /// Its type.
    pub fn value_type(&self) -> ValueType {
        match self {
            MetadataValue::U8(_) => ValueType::U8,
            MetadataValue::I8(_) => ValueType::I8,
            MetadataValue::U16(_) => ValueType::U16,
            MetadataValue::I16(_) => ValueType::I16,
            MetadataValue::U32(_) => ValueType::U32,
            MetadataValue::I32(_) => ValueType::I32,
            MetadataValue::F32(_) => ValueType::F32,
            MetadataValue::Bool(_) => ValueType::Bool,
            MetadataValue::String(_) => ValueType::String,
            MetadataValue::Array(_) => ValueType::Array,
            MetadataValue::U64(_) => ValueType::U64,
            MetadataValue::I64(_) => ValueType::I64,
            MetadataValue::F64(_) => ValueType::F64,
        }
    }

    /// Its value, if it is an integer.
    pub fn integer(&self) -> Option<i128> {
        Some(match self {
            MetadataValue::U8(value) => i128::from(*value),
            MetadataValue::I8(value) => i128::from(*value),
            MetadataValue::U16(value) => i128::from(*value),
            MetadataValue::I16(value) => i128::from(*value),
            MetadataValue::U32(value) => i128::from(*value),
            MetadataValue::I32(value) => i128::from(*value),
            MetadataValue::U64(value) => i128::from(*value),
            MetadataValue::I64(value) => i128::from(*value),
            _ => return None,
        })
    }

    /// Its type for messages: `u32`, `array of string`.
    pub(crate) fn describe(&self) -> String {
        match self {
            MetadataValue::Array(array) => format!("array of {}", array.element_type()),
            value => value.value_type().to_string(),
        }
    }
}

macro_rules! value_from {
    ($($variant:ident($value:ty)),*) => {$(
        impl From<$value> for MetadataValue {
            fn from(value: $value) -> MetadataValue {
                MetadataValue::$variant(value.into())
            }
        }
    )*};
}

value_from! {
    U8(u8), I8(i8), U16(u16), I16(i16), U32(u32), I32(i32), F32(f32), Bool(bool), U64(u64), I64(i64), F64(f64),
    String(Text), String(&str), String(String), Array(Array)
}
