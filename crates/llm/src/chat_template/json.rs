//! `tojson` as templates expect it: in the form of Python's `json.dumps`, with nothing escaped for web pages.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Maximum depth of nested values.
const DEPTH: usize = 64;

pub(super) fn filter(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent = options.get::<Option<usize>>("indent")?.map(|spaces| spaces.min(16));
    let mut text = String::new();
    write(&value, indent, 0, &mut text)?;
    Ok(text)
}

fn write(value: &Value, indent: Option<usize>, depth: usize, text: &mut String) -> Result<(), Error> {
    if depth > DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: values are nested too deeply"));
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => {
            let _ = write!(text, "{value}"); // a string never fails to be written to
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?;
            list('[', ']', items, indent, depth, text, |item, text| write(&item, indent, depth + 1, text))?;
        }
        ValueKind::Map => {
            let keys = value.try_iter()?;
            list('{', '}', keys, indent, depth, text, |key, text| {
                string(key.as_str().unwrap_or(&key.to_string()), text);
                text.push_str(": ");
                write(&value.get_item(&key)?, indent, depth + 1, text)
            })?;
        }
        _ => string(value.as_str().unwrap_or(&value.to_string()), text),
    }
    Ok(())
}

fn list(
    open: char,
    close: char,
    items: impl Iterator<Item = Value>,
    indent: Option<usize>,
    depth: usize,
    text: &mut String,
    write: impl Fn(Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |depth: usize, text: &mut String| {
        if let Some(spaces) = indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', spaces * depth));
        }
    };
    text.push(open);
    let mut empty = true;
    for item in items {
        if !empty {
            text.push_str(if indent.is_some() { "," } else { ", " });
        }
        empty = false;
        line(depth + 1, text);
        write(item, text)?;
    }
    if !empty {
        line(depth, text);
    }
    text.push(close);
    Ok(())
}

fn string(value: &str, text: &mut String) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            control @ ..' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}
