//! Tool calls in the text of an answer.

use serde_json::{Map, Value as Json};

use super::format::{AnswerFormat, Syntax};
use super::json_end::{JsonEnd, JsonProgress};
use crate::ToolCall;

/// What stands behind the opening mark of calls.
pub(super) enum Taken {
    /// More of the answer is needed.
    More,
    /// Calls, in this many bytes.
    Calls(usize, Vec<ToolCall>),
    NoCall,
}

const CLOSE: &str = "</tool_call>";
pub(super) const ARGUMENTS: &str = "[ARGS]";
/// Longer names are none.
pub(super) const LONGEST_NAME: usize = 256;

pub(super) fn take(format: &AnswerFormat, held: &str, json: &mut JsonEnd, end: bool) -> Taken {
    match (format.calls, held.trim_start().chars().next()) {
        (_, None) if !end => Taken::More,
        (Syntax::Tagged, Some('{' | '[')) => tagged_json(held, json, end),
        (Syntax::Tagged, _) => {
            closed(held, CLOSE, end, |body| functions(format, body).or_else(|| arg_keys(format, body)))
        }
        (Syntax::DeepSeek, _) => closed(held, "<｜tool▁calls▁end｜>", end, deepseek),
        (Syntax::Mistral, Some('{' | '[')) => json_calls(held, json, false),
        (Syntax::Mistral, _) => named(held, json, end),
        (Syntax::Llama3, _) => json_calls(held, json, true),
        _ => Taken::NoCall,
    }
    .at_end(end)
}

impl Taken {
    /// Nothing more comes at the end.
    fn at_end(self, end: bool) -> Taken {
        if end && matches!(self, Taken::More) { Taken::NoCall } else { self }
    }
}

/// Calls up to a mark; at the end it may be missing.
fn closed(held: &str, mark: &str, end: bool, read: impl Fn(&str) -> Option<Vec<ToolCall>>) -> Taken {
    let (body, bytes) = match held.find(mark) {
        Some(at) => (&held[..at], at + mark.len()),
        None if end => (held, held.len()),
        None => return Taken::More,
    };
    read(body).map_or(Taken::NoCall, |calls| Taken::Calls(bytes, calls))
}

fn tagged_json(held: &str, json: &mut JsonEnd, end: bool) -> Taken {
    let (bytes, calls) = match json_calls(held, json, false) {
        Taken::Calls(bytes, calls) => (bytes, calls),
        other => return other,
    };
    let rest = held[bytes..].trim_start();
    if rest.starts_with(CLOSE) {
        return Taken::Calls(held.len() - rest.len() + CLOSE.len(), calls);
    }
    // The closing mark may be missing.
    if !end && CLOSE.starts_with(rest) { Taken::More } else { Taken::Calls(bytes, calls) }
}

/// Calls that are JSON: one or an array of them.
fn json_calls(held: &str, json: &mut JsonEnd, needs_arguments: bool) -> Taken {
    let bytes = match json.find(held) {
        JsonProgress::More => return Taken::More,
        JsonProgress::Invalid => return Taken::NoCall,
        JsonProgress::Ends(bytes) => bytes,
    };
    let calls = match serde_json::from_str::<Json>(&held[..bytes]) {
        Ok(Json::Array(items)) => items.iter().map(|item| json_call(item, needs_arguments)).collect(),
        Ok(item) => json_call(&item, needs_arguments).map(|call| vec![call]),
        Err(_) => None,
    };
    calls.map_or(Taken::NoCall, |calls| Taken::Calls(bytes, calls))
}

fn json_call(item: &Json, needs_arguments: bool) -> Option<ToolCall> {
    let function = item.get("function").filter(|function| function.is_object()).unwrap_or(item);
    let name = function.get("name")?.as_str()?.to_owned();
    let arguments = match function.get("arguments").or_else(|| function.get("parameters")) {
        Some(Json::String(text)) => text.clone(),
        Some(arguments) => arguments.to_string(),
        None if needs_arguments => return None,
        None => "{}".to_owned(),
    };
    let id = item.get("id").and_then(Json::as_str).unwrap_or_default().to_owned();
    Some(ToolCall { id, name, arguments })
}

/// `name[ARGS]{…}` or `name[CALL_ID]id[ARGS]{…}`.
fn named(held: &str, json: &mut JsonEnd, end: bool) -> Taken {
    let Some(at) = held.find(ARGUMENTS).filter(|at| *at <= LONGEST_NAME) else {
        let long = end || held.len() > LONGEST_NAME + ARGUMENTS.len();
        return if long { Taken::NoCall } else { Taken::More };
    };
    let head = held[..at].trim();
    let (name, id) = head.split_once("[CALL_ID]").unwrap_or((head, ""));
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Taken::NoCall;
    }
    let start = at + ARGUMENTS.len();
    match json.find(&held[start..]) {
        JsonProgress::More => Taken::More,
        JsonProgress::Invalid => Taken::NoCall,
        JsonProgress::Ends(bytes) => {
            let arguments = held[start..start + bytes].trim().to_owned();
            Taken::Calls(
                start + bytes,
                vec![ToolCall { id: id.to_owned(), name: name.to_owned(), arguments }],
            )
        }
    }
}

/// `<function=name><parameter=key>value</parameter></function>`, one or several.
fn functions(format: &AnswerFormat, body: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix("<function=")?.split_once('>')?;
        let mut arguments = Map::new();
        rest = after.trim_start();
        while let Some(parameter) = rest.strip_prefix("<parameter=") {
            let (key, after) = parameter.split_once('>')?;
            let (value, after) = after.split_once("</parameter>")?;
            let value = value.strip_prefix('\n').unwrap_or(value);
            let value = value.strip_suffix('\n').unwrap_or(value);
            arguments.insert(key.to_owned(), argument(format, name, key, value));
            rest = after.trim_start();
        }
        rest = rest.strip_prefix("</function>")?.trim_start();
        calls.push(call(name, arguments));
    }
    (!calls.is_empty()).then_some(calls)
}

/// `name<arg_key>key</arg_key><arg_value>value</arg_value>`.
fn arg_keys(format: &AnswerFormat, body: &str) -> Option<Vec<ToolCall>> {
    let (name, mut rest) = body.split_at(body.find("<arg_key>").unwrap_or(body.len()));
    let name = name.trim();
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '<') {
        return None;
    }
    let mut arguments = Map::new();
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix("<arg_key>")?.split_once("</arg_key>")?;
        let (value, after) = after.trim_start().strip_prefix("<arg_value>")?.split_once("</arg_value>")?;
        arguments.insert(key.to_owned(), argument(format, name, key, value));
        rest = after.trim_start();
    }
    Some(vec![call(name, arguments)])
}

/// Calls with a mark before and after each, and one between name and arguments.
fn deepseek(body: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let (text, after) = rest.strip_prefix("<｜tool▁call▁begin｜>")?.split_once("<｜tool▁call▁end｜>")?;
        let (first, second) = text.split_once("<｜tool▁sep｜>")?;
        let (name, arguments) = match second.split_once("```json") {
            Some((name, arguments)) => (name, arguments.trim_end().strip_suffix("```")?),
            None => (first, second),
        };
        let arguments = arguments.trim().to_owned();
        calls.push(ToolCall { id: String::new(), name: name.trim().to_owned(), arguments });
        rest = after.trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// A value without quotes: JSON unless the parameter is a string.
fn argument(format: &AnswerFormat, function: &str, parameter: &str, value: &str) -> Json {
    let json = (!format.is_string(function, parameter)).then(|| serde_json::from_str(value.trim()).ok());
    json.flatten().unwrap_or_else(|| Json::String(value.to_owned()))
}

fn call(name: &str, arguments: Map<String, Json>) -> ToolCall {
    let arguments = Json::Object(arguments).to_string();
    ToolCall { id: String::new(), name: name.trim().to_owned(), arguments }
}
