//! Calls whose arguments are tags, read as the JSON object they stand for.

use serde_json::Value as Json;

use super::call_body::{Beginning, CLOSE, beginning};
use super::format::{AnswerFormat, LONGEST_NAME};
use super::{AnswerPart, certain};
use crate::ToolCall;

pub(super) const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const KEY: &str = "<arg_key>";

/// A call of tags, from its beginning: `<function=name><parameter=key>value</parameter></function>`, or
/// `name<arg_key>key</arg_key><arg_value>value</arg_value>`. Of a key that is there twice, the first value counts.
#[derive(Clone, Debug)]
pub(super) struct TaggedCall {
    tags: &'static Tags,
    /// As far as it was given; the name is empty before it has come.
    call: ToolCall,
    keys: Vec<String>,
    value: Option<Value>,
}

/// The tags of an argument.
#[derive(Debug)]
struct Tags {
    key: [&'static str; 2],
    /// What stands between a key and its value.
    between: &'static str,
    value_end: &'static str,
    /// A line break after the first tag and before the last is no part of a value.
    has_lines: bool,
}

static FUNCTION_TAGS: Tags =
    Tags { key: ["<parameter=", ">"], between: "", value_end: "</parameter>", has_lines: true };
static KEY_TAGS: Tags =
    Tags { key: [KEY, "</arg_key>"], between: "<arg_value>", value_end: "</arg_value>", has_lines: false };

/// A value that is being read.
#[derive(Clone, Copy, Debug)]
struct Value {
    is_string: bool,
    /// Its first byte has been looked at.
    has_begun: bool,
    /// It is that of a key that was there before.
    is_ignored: bool,
}

/// What is known of a call.
pub(super) enum TagProgress {
    More,
    NoCall,
    /// It ends here, complete or where it cannot be read.
    Ends {
        call: ToolCall,
        is_whole: bool,
    },
}

impl TaggedCall {
    /// A call that begins with a tag, or with its name.
    pub(super) fn new(begins_with_tag: bool) -> TaggedCall {
        let tags = if begins_with_tag { &FUNCTION_TAGS } else { &KEY_TAGS };
        let call = ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
        TaggedCall { tags, call, keys: Vec::new(), value: None }
    }

    fn is_function(&self) -> bool {
        std::ptr::eq(self.tags, &FUNCTION_TAGS)
    }

    /// Reads what has come, and takes away what is certain.
    pub(super) fn advance(
        &mut self,
        format: &AnswerFormat,
        held: &mut String,
        end: bool,
        parts: &mut Vec<AnswerPart>,
    ) -> TagProgress {
        let mut more = String::new();
        let step = loop {
            let step = match self.value {
                _ if self.call.name.is_empty() => self.head(held, end, parts),
                None => self.between(format, held, end, &mut more),
                Some(value) => self.value(value, held, end, &mut more),
            };
            if !matches!(step, Step::Again) {
                break step;
            }
        };
        if !more.is_empty() {
            self.call.arguments.push_str(&more);
            parts.push(AnswerPart::CallArguments(more));
        }
        match step {
            Step::Again | Step::More => TagProgress::More,
            Step::NoCall => TagProgress::NoCall,
            Step::Ends { is_whole } => TagProgress::Ends { call: self.call.clone(), is_whole },
        }
    }

    fn head(&mut self, held: &mut String, end: bool, parts: &mut Vec<AnswerPart>) -> Step {
        let text = held.trim_start();
        let found = match self.is_function() {
            true => function_head(text),
            false => key_head(text, end),
        };
        let (name, bytes) = match found {
            Ok((name, bytes)) => (name.to_owned(), bytes),
            Err(Beginning::Part) if !end => return Step::More,
            Err(_) => return Step::NoCall,
        };
        held.drain(..held.len() - text.len() + bytes);
        parts.push(AnswerPart::CallBegins { id: String::new(), name: name.clone() });
        self.call.name = name;
        Step::Again
    }

    /// An argument, or the end of all.
    fn between(&mut self, format: &AnswerFormat, held: &mut String, end: bool, more: &mut String) -> Step {
        let space = held.len() - held.trim_start().len();
        held.drain(..space);
        let last = if self.is_function() { FUNCTION_END } else { CLOSE };
        let is_last = match beginning(held, last) {
            Beginning::Whole => true,
            // The mark behind the arguments may be missing.
            _ => end && held.is_empty() && !self.is_function(),
        };
        if is_last {
            if self.is_function() {
                held.drain(..last.len());
            }
            more.push_str(if self.keys.is_empty() { "{}" } else { "}" });
            return Step::Ends { is_whole: true };
        }
        let (key, bytes) = match self.tags.key(held) {
            Ok((key, bytes)) => (key.to_owned(), bytes),
            Err(Beginning::Part) if !end => return Step::More,
            Err(_) if !end && beginning(held, last) == Beginning::Part => return Step::More,
            Err(_) => return Step::Ends { is_whole: false },
        };
        held.drain(..bytes);
        let is_string = format.is_string(&self.call.name, &key);
        let is_ignored = self.keys.contains(&key);
        if !is_ignored {
            more.push(if self.keys.is_empty() { '{' } else { ',' });
            more.push_str(&Json::from(key.as_str()).to_string());
            more.push_str(if is_string { ":\"" } else { ":" });
            self.keys.push(key);
        }
        self.value = Some(Value { is_string, has_begun: false, is_ignored });
        Step::Again
    }

    /// More of a value: strings are given as they come, others when they are complete.
    fn value(&mut self, value: Value, held: &mut String, end: bool, more: &mut String) -> Step {
        if self.tags.has_lines && !value.has_begun {
            if held.is_empty() && !end {
                return Step::More;
            }
            held.drain(..usize::from(held.starts_with('\n')));
        }
        self.value = Some(Value { has_begun: true, ..value });
        let close = self.tags.value_end;
        let found = held.find(close);
        let text = match found {
            Some(at) if self.tags.has_lines => held[..at].strip_suffix('\n').unwrap_or(&held[..at]),
            Some(at) => &held[..at],
            None if end => held.as_str(),
            None if value.is_string => &held[..certain(held, &[close])],
            None => return Step::More,
        };
        let bytes = text.len();
        match value {
            Value { is_ignored: true, .. } => {}
            Value { is_string: true, .. } => more.push_str(&escaped(text)),
            // It may be cut.
            _ if found.is_none() => more.push_str(text),
            _ => {
                let json: Option<Json> = serde_json::from_str(text.trim()).ok();
                more.push_str(&json.unwrap_or_else(|| Json::from(text)).to_string());
            }
        }
        let Some(at) = found else {
            held.drain(..bytes);
            return if end { Step::Ends { is_whole: false } } else { Step::More };
        };
        held.drain(..at + close.len());
        if value.is_string && !value.is_ignored {
            more.push('"');
        }
        self.value = None;
        Step::Again
    }
}

enum Step {
    Again,
    More,
    NoCall,
    Ends { is_whole: bool },
}

impl Tags {
    /// The key at the beginning of a text, and the bytes up to its value.
    fn key<'a>(&self, text: &'a str) -> Result<(&'a str, usize), Beginning> {
        let [open, close] = self.key;
        let Some(after) = text.strip_prefix(open) else { return Err(beginning(text, open)) };
        let (key, rest) = up_to(after, close)?;
        let rest = rest.trim_start_matches(|c: char| c.is_whitespace() && !self.between.is_empty());
        let value = rest.strip_prefix(self.between).ok_or_else(|| beginning(rest, self.between))?;
        Ok((key, text.len() - value.len()))
    }
}

/// What stands before a mark, unless it is too long, and what behind.
fn up_to<'a>(text: &'a str, mark: &str) -> Result<(&'a str, &'a str), Beginning> {
    match text.split_once(mark) {
        Some((name, rest)) if name.len() <= LONGEST_NAME => Ok((name, rest)),
        None if text.len() <= LONGEST_NAME + mark.len() => Err(Beginning::Part),
        _ => Err(Beginning::No),
    }
}

/// `<function=name>`.
fn function_head(text: &str) -> Result<(&str, usize), Beginning> {
    let Some(after) = text.strip_prefix(FUNCTION) else { return Err(beginning(text, FUNCTION)) };
    let (name, rest) = up_to(after, ">")?;
    let name = name.trim();
    if name.is_empty() { Err(Beginning::No) } else { Ok((name, text.len() - rest.len())) }
}

/// `name`, and the first key or the end behind it.
fn key_head(text: &str, end: bool) -> Result<(&str, usize), Beginning> {
    let bytes = match [text.find(KEY), text.find(CLOSE)].into_iter().flatten().min() {
        Some(at) => at,
        None if end => text.len(),
        None if text.len() <= LONGEST_NAME + CLOSE.len() => return Err(Beginning::Part),
        None => return Err(Beginning::No),
    };
    let name = text[..bytes].trim();
    let is_name = !name.is_empty() && bytes <= LONGEST_NAME && !name.contains(char::is_whitespace);
    if is_name && !name.contains('<') { Ok((name, bytes)) } else { Err(Beginning::No) }
}

/// A text as a part of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = Json::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
