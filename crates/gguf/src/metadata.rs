//! Metadata: typed values by key.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{Array, Error, MetadataValue, Strings, Text, ValueType};

/// The metadata of a file: typed values by key, in file order.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<(Arc<str>, MetadataValue)>,
    places: HashMap<Arc<str>, usize>,
}

/// Compares keys, values and their order.
impl PartialEq for Metadata {
    fn eq(&self, other: &Metadata) -> bool {
        self.entries == other.entries
    }
}

impl Metadata {
    /// Empty metadata.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &MetadataValue)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// Sets the value of a key, which keeps its position; a new key goes to the end.
    ///
    /// # Errors
    /// [`Error::EmptyKey`].
    pub fn set(&mut self, key: &str, value: impl Into<MetadataValue>) -> Result<(), Error> {
        match self.places.get(key) {
            Some(place) => self.entries[*place].1 = value.into(),
            None => self.add(key, value.into())?,
        }
        Ok(())
    }

    /// Adds a new key.
    pub(crate) fn add(&mut self, key: &str, value: MetadataValue) -> Result<(), Error> {
        let place = self.entries.len();
        if key.is_empty() {
            return Err(Error::EmptyKey { index: place as u64 });
        }
        let name: Arc<str> = key.into();
        if self.places.insert(Arc::clone(&name), place).is_some() {
            return Err(Error::DuplicateKey(key.to_owned()));
        }
        self.entries.push((name, value));
        Ok(())
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<MetadataValue> {
        let place = self.places.remove(key)?;
        for later in self.places.values_mut().filter(|later| **later > place) {
            *later -= 1;
        }
        Some(self.entries.remove(place).1)
    }

    /// Whether a key exists.
    pub fn contains(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// The value of a key, if it exists.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.places.get(key).map(|place| &self.entries[*place].1)
    }

    /// The value of a required key.
    ///
    /// # Errors
    /// [`Error::MissingKey`].
    pub fn required(&self, key: &str) -> Result<&MetadataValue, Error> {
        self.get(key).ok_or_else(|| Error::MissingKey(key.to_owned()))
    }

    /// Reads an optional key: `metadata.optional(key, Metadata::u32)`.
    ///
    /// # Errors
    /// Those of `read`, if the key exists.
    pub fn optional<'a, T>(
        &'a self,
        key: &str,
        read: impl FnOnce(&'a Metadata, &str) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.contains(key) { read(self, key).map(Some) } else { Ok(None) }
    }

    /// An integer of any type that fits `u16`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::IntegerRange`].
    pub fn u16(&self, key: &str) -> Result<u16, Error> {
        self.integer(key, ValueType::U16)
    }

    /// An integer of any type that fits `u32`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::IntegerRange`].
    pub fn u32(&self, key: &str) -> Result<u32, Error> {
        self.integer(key, ValueType::U32)
    }

    /// An integer of any type that fits `i32`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::IntegerRange`].
    pub fn i32(&self, key: &str) -> Result<i32, Error> {
        self.integer(key, ValueType::I32)
    }

    /// An integer of any type that fits `u64`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::IntegerRange`].
    pub fn u64(&self, key: &str) -> Result<u64, Error> {
        self.integer(key, ValueType::U64)
    }

    /// An integer of any type that fits `i64`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::IntegerRange`].
    pub fn i64(&self, key: &str) -> Result<i64, Error> {
        self.integer(key, ValueType::I64)
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, expected: ValueType) -> Result<T, Error> {
        let value = self.required(key)?;
        let value = value.integer().ok_or_else(|| wrong(key, expected.name(), value))?;
        T::try_from(value).map_err(|_| Error::IntegerRange { key: key.to_owned(), value, expected })
    }

    /// A floating-point number; an F64 is rounded.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], also for integers.
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        match self.required(key)? {
            MetadataValue::F32(value) => Ok(*value),
            MetadataValue::F64(value) => Ok(*value as f32),
            value => Err(wrong(key, "f32", value)),
        }
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], also for integers.
    pub fn f64(&self, key: &str) -> Result<f64, Error> {
        match self.required(key)? {
            MetadataValue::F32(value) => Ok(f64::from(*value)),
            MetadataValue::F64(value) => Ok(*value),
            value => Err(wrong(key, "f64", value)),
        }
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`].
    pub fn bool(&self, key: &str) -> Result<bool, Error> {
        match self.required(key)? {
            MetadataValue::Bool(value) => Ok(*value),
            value => Err(wrong(key, "bool", value)),
        }
    }

    /// A UTF-8 string.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::NotUtf8`].
    pub fn string(&self, key: &str) -> Result<&str, Error> {
        self.text(key)?.to_str().map_err(|source| Error::NotUtf8 { key: key.to_owned(), source })
    }

    /// A string as stored in the file.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`].
    pub fn text(&self, key: &str) -> Result<&Text, Error> {
        match self.required(key)? {
            MetadataValue::String(value) => Ok(value),
            value => Err(wrong(key, "string", value)),
        }
    }

    /// An array of any type.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`].
    pub fn array(&self, key: &str) -> Result<&Array, Error> {
        match self.required(key)? {
            MetadataValue::Array(value) => Ok(value),
            value => Err(wrong(key, "array", value)),
        }
    }

    /// An array of strings as stored in the file.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`].
    pub fn strings(&self, key: &str) -> Result<&Strings, Error> {
        match self.required(key)? {
            MetadataValue::Array(Array::String(strings)) => Ok(strings),
            value => Err(wrong(key, "array of string", value)),
        }
    }

    /// An array of UTF-8 strings.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::ItemNotUtf8`].
    pub fn strs(&self, key: &str) -> Result<Vec<&str>, Error> {
        let strings = self.strings(key)?.iter().enumerate();
        strings
            .map(|(index, bytes)| {
                let not_utf8 = |source| Error::ItemNotUtf8 { key: key.to_owned(), index, source };
                std::str::from_utf8(bytes).map_err(not_utf8)
            })
            .collect()
    }

    /// An array of integers of any type that fit `u32`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::IntegerRange`].
    pub fn u32s(&self, key: &str) -> Result<Vec<u32>, Error> {
        self.integers(key, ValueType::U32, "array of u32")
    }

    /// An array of integers of any type that fit `i32`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`], [`Error::IntegerRange`].
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, Error> {
        self.integers(key, ValueType::I32, "array of i32")
    }

    fn integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: ValueType,
        expected_array: &'static str,
    ) -> Result<Vec<T>, Error> {
        let value = self.required(key)?;
        let integers = match value {
            MetadataValue::Array(array) => array.integers(),
            _ => None,
        };
        integers
            .ok_or_else(|| wrong(key, expected_array, value))?
            .map(|value| {
                T::try_from(value).map_err(|_| Error::IntegerRange { key: key.to_owned(), value, expected })
            })
            .collect()
    }

    /// An array of F32.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`].
    pub fn f32s(&self, key: &str) -> Result<&[f32], Error> {
        match self.required(key)? {
            MetadataValue::Array(Array::F32(values)) => Ok(values),
            value => Err(wrong(key, "array of f32", value)),
        }
    }

    /// An array of booleans.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`].
    pub fn bools(&self, key: &str) -> Result<&[bool], Error> {
        match self.required(key)? {
            MetadataValue::Array(Array::Bool(values)) => Ok(values),
            value => Err(wrong(key, "array of bool", value)),
        }
    }
}

fn wrong(key: &str, expected: &'static str, value: &MetadataValue) -> Error {
    Error::WrongType { key: key.to_owned(), expected, found: value.describe() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let mut metadata = Metadata::new();
        metadata.set("small", 200u8).unwrap();
        metadata.set("negative", -1i64).unwrap();
        metadata.set("large", u64::MAX).unwrap();
        metadata.set("fraction", 0.5f64).unwrap();
        metadata.set("yes", true).unwrap();
        metadata.set("name", "ä").unwrap();
        metadata.set("broken", Text::from(&b"a\xff"[..])).unwrap();
        metadata.set("list", Array::I16(vec![1, 2, -3])).unwrap();
        metadata.set("words", Array::String([&b"a"[..], b"\xff"].into_iter().collect())).unwrap();
        metadata
    }

    #[test]
    fn integers_convert_when_they_fit() {
        let metadata = sample();
        assert_eq!(metadata.u32("small").unwrap(), 200);
        assert_eq!(metadata.i32("negative").unwrap(), -1);
        assert_eq!(metadata.u64("large").unwrap(), u64::MAX);
        assert_eq!(metadata.i32s("list").unwrap(), [1, 2, -3]);
        let error = metadata.u32("negative").unwrap_err();
        assert_eq!(error.to_string(), "the value of `negative` is -1, which does not fit u32");
        assert!(matches!(metadata.i64("large"), Err(Error::IntegerRange { .. })));
        assert!(matches!(metadata.u32s("list"), Err(Error::IntegerRange { value: -3, .. })));
    }

    #[test]
    fn what_is_missing_or_of_another_type_is_named() {
        let metadata = sample();
        assert_eq!(metadata.u32("no").unwrap_err().to_string(), "the key `no` is missing");
        let wrong = metadata.f32s("list").unwrap_err().to_string();
        assert_eq!(wrong, "the value of `list` has type array of i16, expected array of f32");
        assert!(matches!(metadata.u32("yes"), Err(Error::WrongType { expected: "u32", .. })));
        assert!(matches!(metadata.f32("small"), Err(Error::WrongType { .. })));
        assert!(matches!(metadata.bool("small"), Err(Error::WrongType { .. })));
        assert_eq!(metadata.f32("fraction").unwrap(), 0.5);
        assert_eq!(metadata.optional("no", Metadata::u32).unwrap(), None);
        assert_eq!(metadata.optional("small", Metadata::u32).unwrap(), Some(200));
        assert!(metadata.optional("yes", Metadata::u32).is_err());
    }

    #[test]
    fn strings_that_are_not_utf8_keep_their_bytes() {
        let metadata = sample();
        assert_eq!(metadata.string("name").unwrap(), "ä");
        assert!(metadata.string("broken").unwrap_err().to_string().contains("`broken`"));
        assert_eq!(metadata.text("broken").unwrap().as_bytes(), b"a\xff");
        assert_eq!(metadata.text("broken").unwrap().to_str_lossy(), "a\u{fffd}");
        assert_eq!(metadata.strings("words").unwrap().get(1), Some(&b"\xff"[..]));
        let error = metadata.strs("words").unwrap_err().to_string();
        assert_eq!(error, "string number 1 of `words` is not UTF-8");
    }

    #[test]
    fn order_survives_changes() {
        let mut metadata = sample();
        metadata.set("large", 1u8).unwrap();
        assert_eq!(metadata.remove("negative"), Some(MetadataValue::I64(-1)));
        let keys: Vec<&str> = metadata.iter().map(|(key, _)| key).collect();
        assert_eq!(keys[..3], ["small", "large", "fraction"]);
        for key in keys {
            assert!(metadata.get(key).is_some());
        }
        assert_eq!(metadata.u32("large").unwrap(), 1);
        assert!(matches!(metadata.set("", 1u8), Err(Error::EmptyKey { index: 8 })));
    }
}
