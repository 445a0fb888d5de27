use crate::{Array, Text, ValueType};

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the format's own
pub enum Value {
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

impl Value {
    /// Its type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// Its value, if it is an integer of any width.
    pub fn integer(&self) -> Option<i128> {
        Some(match self {
            Value::U8(value) => i128::from(*value),
            Value::I8(value) => i128::from(*value),
            Value::U16(value) => i128::from(*value),
            Value::I16(value) => i128::from(*value),
            Value::U32(value) => i128::from(*value),
            Value::I32(value) => i128::from(*value),
            Value::U64(value) => i128::from(*value),
            Value::I64(value) => i128::from(*value),
            _ => return None,
        })
    }

    /// Its type in words: `u32`, `array of string`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Array(array) => format!("array of {}", array.element_type()),
            value => value.value_type().to_string(),
        }
    }
}

macro_rules! value_from {
    ($($variant:ident($value:ty)),*) => {$(
        impl From<$value> for Value {
            fn from(value: $value) -> Value {
                Value::$variant(value.into())
            }
        }
    )*};
}

value_from! {
    U8(u8), I8(i8), U16(u16), I16(i16), U32(u32), I32(i32), F32(f32), Bool(bool), U64(u64), I64(i64), F64(f64),
    String(Text), String(&str), String(String), Array(Array)
}
