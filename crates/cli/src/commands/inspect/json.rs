//! The contents of a model file as JSON.

use orlop::gguf::{Array, GgufFile, Metadata, MetadataValue, TensorInfo};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

/// Longer arrays are only counted without `--full`: lists a value per layer, but not a vocabulary.
const LISTED: usize = 256;

pub(super) struct Report<'a> {
    pub(super) model: &'a GgufFile,
    pub(super) full: bool,
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("Report", 3)?;
        report.serialize_field("version", &self.model.parts()[0].version())?;
        report.serialize_field("metadata", &Pairs { metadata: self.model.metadata(), full: self.full })?;
        report.serialize_field("tensors", &Tensors(self.model.tensors()))?;
        report.end()
    }
}

struct Pairs<'a> {
    metadata: &'a Metadata,
    full: bool,
}

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.metadata.len()))?;
        for (key, value) in self.metadata.iter() {
            map.serialize_entry(key, &Item { value, full: self.full })?;
        }
        map.end()
    }
}

struct Item<'a> {
    value: &'a MetadataValue,
    full: bool,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            MetadataValue::U8(value) => serializer.serialize_u8(*value),
            MetadataValue::I8(value) => serializer.serialize_i8(*value),
            MetadataValue::U16(value) => serializer.serialize_u16(*value),
            MetadataValue::I16(value) => serializer.serialize_i16(*value),
            MetadataValue::U32(value) => serializer.serialize_u32(*value),
            MetadataValue::I32(value) => serializer.serialize_i32(*value),
            MetadataValue::F32(value) => serializer.serialize_f32(*value),
            MetadataValue::Bool(value) => serializer.serialize_bool(*value),
            MetadataValue::String(value) => serializer.serialize_str(&value.to_str_lossy()),
            MetadataValue::Array(array) => Items { array, full: self.full }.serialize(serializer),
            MetadataValue::U64(value) => serializer.serialize_u64(*value),
            MetadataValue::I64(value) => serializer.serialize_i64(*value),
            MetadataValue::F64(value) => serializer.serialize_f64(*value),
        }
    }
}

struct Items<'a> {
    array: &'a Array,
    full: bool,
}

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.array.len() > LISTED && !self.full {
            let mut counted = serializer.serialize_struct("Counted", 2)?;
            counted.serialize_field("array", self.array.element_type().name())?;
            counted.serialize_field("length", &self.array.len())?;
            return counted.end();
        }
        match self.array {
            Array::U8(items) => items.serialize(serializer),
            Array::I8(items) => items.serialize(serializer),
            Array::U16(items) => items.serialize(serializer),
            Array::I16(items) => items.serialize(serializer),
            Array::U32(items) => items.serialize(serializer),
            Array::I32(items) => items.serialize(serializer),
            Array::F32(items) => items.serialize(serializer),
            Array::Bool(items) => items.serialize(serializer),
            Array::String(items) => serializer.collect_seq(items.iter().map(String::from_utf8_lossy)),
            Array::Array(items) => {
                serializer.collect_seq(items.iter().map(|array| Items { array, full: self.full }))
            }
            Array::U64(items) => items.serialize(serializer),
            Array::I64(items) => items.serialize(serializer),
            Array::F64(items) => items.serialize(serializer),
        }
    }
}

struct Tensors<'a>(&'a [TensorInfo]);

impl Serialize for Tensors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for tensor in self.0 {
            list.serialize_element(&Tensor {
                name: &tensor.name,
                r#type: tensor.desc.dtype.name(),
                extents: tensor.extents(),
                bytes: tensor.bytes,
                offset: tensor.offset,
                part: tensor.part,
            })?;
        }
        list.end()
    }
}

#[derive(serde::Serialize)]
struct Tensor<'a> {
    name: &'a str,
    r#type: &'a str,
    extents: &'a [u64],
    bytes: u64,
    offset: u64,
    part: usize,
}
