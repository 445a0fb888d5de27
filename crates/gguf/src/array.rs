//! Arrays of metadata values.

use crate::{Strings, ValueType};

/// An array of metadata values of one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the format's own
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    /// Nested arrays; each may have its own type.
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// The type of its elements.
    pub fn element_type(&self) -> ValueType {
        match self {
            Array::U8(_) => ValueType::U8,
            Array::I8(_) => ValueType::I8,
            Array::U16(_) => ValueType::U16,
            Array::I16(_) => ValueType::I16,
            Array::U32(_) => ValueType::U32,
            Array::I32(_) => ValueType::I32,
            Array::F32(_) => ValueType::F32,
            Array::Bool(_) => ValueType::Bool,
            Array::String(_) => ValueType::String,
            Array::Array(_) => ValueType::Array,
            Array::U64(_) => ValueType::U64,
            Array::I64(_) => ValueType::I64,
            Array::F64(_) => ValueType::F64,
        }
    }

    /// Number of elements; a nested array counts as one.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(items) => items.len(),
            Array::I8(items) => items.len(),
            Array::U16(items) => items.len(),
            Array::I16(items) => items.len(),
            Array::U32(items) => items.len(),
            Array::I32(items) => items.len(),
            Array::F32(items) => items.len(),
            Array::Bool(items) => items.len(),
            Array::String(items) => items.len(),
            Array::Array(items) => items.len(),
            Array::U64(items) => items.len(),
            Array::I64(items) => items.len(),
            Array::F64(items) => items.len(),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its elements as integers; `None` if they are not integers.
    pub fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        Some(match self {
            Array::U8(items) => Box::new(items.iter().map(|item| i128::from(*item))),
            Array::I8(items) => Box::new(items.iter().map(|item| i128::from(*item))),
            Array::U16(items) => Box::new(items.iter().map(|item| i128::from(*item))),
            Array::I16(items) => Box::new(items.iter().map(|item| i128::from(*item))),
            Array::U32(items) => Box::new(items.iter().map(|item| i128::from(*item))),
            Array::I32(items) => Box::new(items.iter().map(|item| i128::from(*item))),
            Array::U64(items) => Box::new(items.iter().map(|item| i128::from(*item))),
            Array::I64(items) => Box::new(items.iter().map(|item| i128::from(*item))),
            _ => return None,
        })
    }
}

macro_rules! array_from {
    ($($variant:ident($items:ty)),*) => {$(
        impl From<$items> for Array {
            fn from(items: $items) -> Array {
                Array::$variant(items)
            }
        }
    )*};
}

array_from! {
    U8(Vec<u8>), I8(Vec<i8>), U16(Vec<u16>), I16(Vec<i16>), U32(Vec<u32>), I32(Vec<i32>), F32(Vec<f32>),
    Bool(Vec<bool>), String(Strings), Array(Vec<Array>), U64(Vec<u64>), I64(Vec<i64>), F64(Vec<f64>)
}
