//! Bounds on grammars, which are found before anything is built.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::GrammarError;

/// The bytes of a JSON schema.
const SCHEMA_BYTES: usize = 256 << 10;
/// How deep a JSON schema may be nested.
pub(super) const SCHEMA_DEPTH: usize = 64;
/// How many levels all parts together may have that a JSON schema refers to: they may be chained.
const SCHEMA_LEVELS: usize = 4096;
/// The bytes of any other grammar.
const TEXT_BYTES: usize = 64 << 10;
/// The lines and opening brackets of any other grammar: rules may be chained, and each has a line.
const TEXT_LEVELS: usize = 4096;

/// Refuses a JSON schema that would take too much memory or time.
pub(super) fn check_schema(schema: &Json, depth_limit: usize) -> Result<(), GrammarError> {
    let limited = |what, found, limit| match found <= limit {
        true => Ok(()),
        false => Err(GrammarError::TooLarge { kind: "JSON schema", what, found, limit }),
    };
    let mut targets = BTreeSet::new();
    let mut depth = 0;
    visit(schema, |level, part| {
        depth = depth.max(level);
        targets.extend(part.get("$ref").and_then(Json::as_str));
    });
    limited("levels of nesting", depth, depth_limit)?;
    limited("bytes", schema.to_string().len(), SCHEMA_BYTES)?;
    let mut levels = 0;
    for target in targets {
        let part = target.strip_prefix('#').and_then(|pointer| schema.pointer(pointer));
        let mut deepest = 0;
        if let Some(part) = part {
            visit(part, |level, _| deepest = deepest.max(level));
        }
        levels += deepest;
        limited("levels in parts that it refers to", levels, SCHEMA_LEVELS)?;
    }
    Ok(())
}

/// Sees a value and everything in it, with its level; the value's own is 1.
fn visit<'a>(value: &'a Json, mut each: impl FnMut(usize, &'a Json)) {
    let mut left = vec![(1, value)];
    while let Some((level, value)) = left.pop() {
        each(level, value);
        match value {
            Json::Array(items) => left.extend(items.iter().map(|item| (level + 1, item))),
            Json::Object(members) => left.extend(members.values().map(|member| (level + 1, member))),
            _ => {}
        }
    }
}

/// Refuses a grammar in text that would take too much memory or time.
pub(super) fn check_text(kind: &'static str, text: &str) -> Result<(), GrammarError> {
    if text.len() > TEXT_BYTES {
        return Err(GrammarError::TooLarge { kind, what: "bytes", found: text.len(), limit: TEXT_BYTES });
    }
    let opens = |byte: &u8| matches!(byte, b'\n' | b'(' | b'[' | b'{');
    let found = text.bytes().filter(|byte| opens(byte)).count();
    if found > TEXT_LEVELS {
        return Err(GrammarError::TooLarge { kind, what: "lines and brackets", found, limit: TEXT_LEVELS });
    }
    Ok(())
}
