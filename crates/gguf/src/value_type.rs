//! The types of metadata values.

use std::fmt;

/// The type of a metadata value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the format's own
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

/// Every type with its name, ordered by id.
const TABLE: [(ValueType, &str); 13] = [
    (ValueType::U8, "u8"),
    (ValueType::I8, "i8"),
    (ValueType::U16, "u16"),
    (ValueType::I16, "i16"),
    (ValueType::U32, "u32"),
    (ValueType::I32, "i32"),
    (ValueType::F32, "f32"),
    (ValueType::Bool, "bool"),
    (ValueType::String, "string"),
    (ValueType::Array, "array"),
    (ValueType::U64, "u64"),
    (ValueType::I64, "i64"),
    (ValueType::F64, "f64"),
];

impl ValueType {
    /// Every type, ordered by id.
    pub fn all() -> impl Iterator<Item = ValueType> {
        TABLE.iter().map(|row| row.0)
    }

    /// The id in files.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The type with this id, if it exists.
    pub fn from_id(id: u32) -> Option<ValueType> {
        TABLE.get(usize::try_from(id).ok()?).map(|row| row.0)
    }

    /// The short name, such as `u32`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Minimum bytes of a value of this type in a file.
    pub(crate) fn least_bytes(self) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String => 8,
            ValueType::Array => 12,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0.id() as usize, index);
            assert_eq!(ValueType::from_id(row.0.id()), Some(row.0));
        }
        assert_eq!(ValueType::from_id(13), None);
    }
}
