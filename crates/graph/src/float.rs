//! `f32` parameters as text. JSON has no infinities and no NaN, so these are written as strings.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f32(*value)
    } else {
        serializer.serialize_str(&value.to_string())
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    deserializer.deserialize_any(Number)
}

struct Number;

impl Visitor<'_> for Number {
    type Value = f32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a 32-bit number, \"inf\", \"-inf\" or \"NaN\"")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f32, E> {
        let narrow = value as f32;
        if narrow.is_finite() { Ok(narrow) } else { Err(E::invalid_value(Unexpected::Float(value), &self)) }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f32, E> {
        Ok(value as f32)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<f32, E> {
        Ok(value as f32)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<f32, E> {
        match name {
            "inf" => Ok(f32::INFINITY),
            "-inf" => Ok(f32::NEG_INFINITY),
            "NaN" => Ok(f32::NAN),
            _ => Err(E::invalid_value(Unexpected::Str(name), &self)),
        }
    }
}
