//! The contents of a model file as text.

use std::fmt::{self, Debug, Display};
use std::path::Path;

use orlop::gguf::{Array, GgufFile, MetadataValue};

use super::types::TypeSums;
use crate::quantity::short_bytes;

/// Items of an array and characters of a string that are shown without `--full`.
const ITEMS: usize = 6;
const CHARACTERS: usize = 60;

/// Metadata, and totals of the tensors.
pub(super) struct Summary<'a> {
    pub(super) path: &'a Path,
    pub(super) model: &'a GgufFile,
    pub(super) full: bool,
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (model, bytes) = (self.model, self.model.bytes());
        let version = model.parts()[0].version();
        write!(f, "{}: GGUF version {version}, {bytes} bytes", self.path.display())?;
        if bytes >= 1024 {
            write!(f, " ({})", short_bytes(bytes))?;
        }
        if model.parts().len() > 1 {
            write!(f, " in {} parts", model.parts().len())?;
        }
        writeln!(f, "\n\nmetadata: {} keys", model.metadata().len())?;
        let width = model.metadata().iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0).min(48);
        for (key, value) in model.metadata().iter() {
            // A key may contain line breaks.
            let key = key.escape_debug().to_string();
            writeln!(f, "  {key:width$}  {}", Shown { value, full: self.full })?;
        }
        write!(f, "\n{}", TypeSums::of(model))
    }
}

/// The tensors, one per line.
pub(super) struct Listing<'a>(pub(super) &'a GgufFile);

impl Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.tensors().iter().map(|tensor| tensor.name.chars().count());
        let width = names.max().unwrap_or(0).clamp(4, 64);
        let split = self.0.parts().len() > 1;
        let titles = ("name", "type", "extents", "bytes", "offset");
        write!(
            f,
            "\n  {:width$}  {:8} {:24} {:>14} {:>14}",
            titles.0, titles.1, titles.2, titles.3, titles.4
        )?;
        if split {
            write!(f, " {:>6}", "part")?;
        }
        for tensor in self.0.tensors() {
            let extents: Vec<String> = tensor.extents().iter().map(u64::to_string).collect();
            let (name, dtype) = (tensor.name.escape_debug().to_string(), tensor.desc.dtype.name());
            write!(f, "\n  {name:width$}  {dtype:8} {:24}", extents.join(" "))?;
            write!(f, " {:>14} {:>14}", tensor.bytes, tensor.offset)?;
            if split {
                write!(f, " {:>6}", tensor.part + 1)?;
            }
        }
        Ok(())
    }
}

struct Shown<'a> {
    value: &'a MetadataValue,
    full: bool,
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            MetadataValue::U8(value) => plain(f, value),
            MetadataValue::I8(value) => plain(f, value),
            MetadataValue::U16(value) => plain(f, value),
            MetadataValue::I16(value) => plain(f, value),
            MetadataValue::U32(value) => plain(f, value),
            MetadataValue::I32(value) => plain(f, value),
            MetadataValue::F32(value) => plain(f, value),
            MetadataValue::Bool(value) => plain(f, value),
            MetadataValue::String(value) => show_string(f, value.as_bytes(), self.full),
            MetadataValue::Array(value) => show_array(f, value, self.full),
            MetadataValue::U64(value) => plain(f, value),
            MetadataValue::I64(value) => plain(f, value),
            MetadataValue::F64(value) => plain(f, value),
        }
    }
}

fn plain(f: &mut fmt::Formatter<'_>, item: impl Debug) -> fmt::Result {
    write!(f, "{item:?}")
}

fn show_string(f: &mut fmt::Formatter<'_>, bytes: &[u8], full: bool) -> fmt::Result {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) if !full => write!(f, "{:?}… ({} bytes)", &text[..end], bytes.len()),
        _ => write!(f, "{text:?}"),
    }
}

fn show_array(f: &mut fmt::Formatter<'_>, array: &Array, full: bool) -> fmt::Result {
    write!(f, "{} {} [", array.len(), array.element_type())?;
    match array {
        Array::U8(items) => show_items(f, items.iter(), full, plain),
        Array::I8(items) => show_items(f, items.iter(), full, plain),
        Array::U16(items) => show_items(f, items.iter(), full, plain),
        Array::I16(items) => show_items(f, items.iter(), full, plain),
        Array::U32(items) => show_items(f, items.iter(), full, plain),
        Array::I32(items) => show_items(f, items.iter(), full, plain),
        Array::F32(items) => show_items(f, items.iter(), full, plain),
        Array::Bool(items) => show_items(f, items.iter(), full, plain),
        Array::String(items) => show_items(f, items.iter(), full, |f, item| show_string(f, item, full)),
        Array::Array(items) => show_items(f, items.iter(), full, |f, item| show_array(f, item, full)),
        Array::U64(items) => show_items(f, items.iter(), full, plain),
        Array::I64(items) => show_items(f, items.iter(), full, plain),
        Array::F64(items) => show_items(f, items.iter(), full, plain),
    }?;
    f.write_str("]")
}

fn show_items<T>(
    f: &mut fmt::Formatter<'_>,
    items: impl ExactSizeIterator<Item = T>,
    full: bool,
    show: impl Fn(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    let count = items.len();
    let shown = if full { count } else { count.min(ITEMS) };
    for (index, item) in items.take(shown).enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        show(f, item)?;
    }
    if shown < count { f.write_str(", …") } else { Ok(()) }
}
