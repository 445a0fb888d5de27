//! `tojson` as templates expect it: in the form of Python's `json.dumps`, with nothing escaped for web pages.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Maximum depth of nested values.
const DEPTH: usize = 64;

/// How values are written.
struct Style {
    indent: Option<usize>,
    comma: String,
    colon: String,
    sorted: bool,
    ascii: bool,
}

pub(super) fn filter(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent = options.get::<Option<usize>>("indent")?.map(|spaces| spaces.min(16));
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let mut separators = separators.unwrap_or_default().into_iter();
    let style = Style {
        indent,
        comma: separators.next().unwrap_or_else(|| if indent.is_some() { "," } else { ", " }.to_owned()),
        colon: separators.next().unwrap_or_else(|| ": ".to_owned()),
        sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    let mut text = String::new();
    write(&value, &style, 0, &mut text)?;
    Ok(text)
}

fn write(value: &Value, style: &Style, depth: usize, text: &mut String) -> Result<(), Error> {
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
            list(['[', ']'], items, style, depth, text, |item, text| write(&item, style, depth + 1, text))?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sorted {
                keys.sort();
            }
            list(['{', '}'], keys.into_iter(), style, depth, text, |key, text| {
                string(key.as_str().unwrap_or(&key.to_string()), style.ascii, text);
                text.push_str(&style.colon);
                write(&value.get_item(&key)?, style, depth + 1, text)
            })?;
        }
        _ => string(value.as_str().unwrap_or(&value.to_string()), style.ascii, text),
    }
    Ok(())
}

fn list(
    [open, close]: [char; 2],
    items: impl Iterator<Item = Value>,
    style: &Style,
    depth: usize,
    text: &mut String,
    write: impl Fn(Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |depth: usize, text: &mut String| {
        if let Some(spaces) = style.indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', spaces * depth));
        }
    };
    text.push(open);
    let mut empty = true;
    for item in items {
        if !empty {
            text.push_str(&style.comma);
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

fn string(value: &str, ascii: bool, text: &mut String) {
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
            other if ascii && !other.is_ascii() => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
            other => text.push(other),
        }
    }
    text.push('"');
}
