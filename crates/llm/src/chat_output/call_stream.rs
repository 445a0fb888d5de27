//! A call that is still being written: its name and arguments, as far as they are certain.

use super::AnswerPart;
use super::format::{LONGEST_NAME, Syntax};
use crate::ToolCall;

const ARGUMENTS: &str = "[ARGS]";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const FENCE: &str = "```json";

/// Follows a call from its beginning. Calls whose name does not come before their arguments are given when they are complete.
#[derive(Clone, Debug, Default)]
pub(super) enum CallStream {
    /// The arguments have not begun.
    #[default]
    Before,
    /// They cannot be followed.
    Never,
    Within(Arguments),
}

/// Arguments that have begun.
#[derive(Clone, Debug)]
pub(super) struct Arguments {
    /// The call so far.
    call: ToolCall,
    /// Bytes that were read.
    read: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// White space between values is left out.
    compact: bool,
    /// Where the JSON begins of which they are a part.
    json: usize,
}

/// Where the JSON of a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// More of the call is needed.
    More,
    /// Its arguments cannot be followed.
    Never,
    /// Behind this many bytes.
    Within(usize),
}

/// Why there are no arguments.
enum Stop {
    /// More of the call is needed.
    More,
    /// The call is written in another way.
    Never,
}

/// What stands before arguments.
struct Head<'a> {
    id: &'a str,
    name: &'a str,
    /// Bytes up to the arguments.
    bytes: usize,
    /// White space between values of the arguments is left out.
    compact: bool,
    /// Bytes up to the JSON of which the arguments are a part.
    json: usize,
}

impl CallStream {
    /// Looks for the beginning of the arguments, in a text that begins with the one read before.
    pub(super) fn begin(&mut self, syntax: Syntax, held: &str, parts: &mut Vec<AnswerPart>) -> Begun {
        if let CallStream::Before = self {
            match head(syntax, held) {
                Ok(Head { id, name, bytes, compact, json }) => {
                    let (id, name) = (id.to_owned(), name.to_owned());
                    parts.push(AnswerPart::CallBegins { id: id.clone(), name: name.clone() });
                    let call = ToolCall { id, name, arguments: String::new() };
                    *self = CallStream::Within(Arguments { compact, json, ..Arguments::new(call, bytes) });
                }
                Err(Stop::Never) => *self = CallStream::Never,
                Err(Stop::More) => {}
            }
        }
        match self {
            CallStream::Before => Begun::More,
            CallStream::Never => Begun::Never,
            CallStream::Within(arguments) => Begun::Within(arguments.json),
        }
    }

    /// Gives what is new of arguments that have begun, in a text that begins with the one read before.
    pub(super) fn follow(&mut self, held: &str, parts: &mut Vec<AnswerPart>) {
        if let CallStream::Within(arguments) = self {
            let more = arguments.take(held);
            if !more.is_empty() {
                parts.push(AnswerPart::CallArguments(more));
            }
        }
    }

    /// Reads a text that is arguments and nothing else, and returns what is new, without white space around them.
    pub(super) fn advance_named(&mut self, name: &str, text: &str) -> Vec<AnswerPart> {
        let mut parts = Vec::new();
        let space = text.len() - text.trim_start().len();
        if let (CallStream::Before, true) = (&self, space < text.len()) {
            let call = ToolCall { id: String::new(), name: name.to_owned(), arguments: String::new() };
            parts.push(AnswerPart::CallBegins { id: call.id.clone(), name: call.name.clone() });
            *self = CallStream::Within(Arguments::new(call, space));
        }
        if let CallStream::Within(Arguments { call, read, .. }) = self
            && *read < text.len()
        {
            let more = text[*read..].to_owned();
            call.arguments.push_str(&more);
            *read = text.len();
            parts.push(AnswerPart::CallArguments(more));
        }
        parts
    }

    /// The call as far as it was given, and the bytes that were read.
    pub(super) fn given(&self) -> Option<(&ToolCall, usize)> {
        match self {
            CallStream::Within(arguments) => Some((&arguments.call, arguments.read)),
            CallStream::Before | CallStream::Never => None,
        }
    }
}

impl Arguments {
    /// Arguments that begin behind some bytes.
    fn new(call: ToolCall, read: usize) -> Arguments {
        Arguments { call, read, depth: 0, in_string: false, escaped: false, compact: false, json: 0 }
    }

    /// The arguments that have come.
    fn take(&mut self, held: &str) -> String {
        let mut more = String::new();
        for c in held.get(self.read..).unwrap_or_default().chars() {
            let has_begun = !self.call.arguments.is_empty() || !more.is_empty();
            if has_begun && self.depth == 0 {
                break;
            }
            self.read += c.len_utf8();
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' if self.in_string => self.escaped = true,
                '"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth -= 1,
                c if c.is_whitespace() && self.compact => continue,
                _ => {}
            }
            more.push(c);
        }
        self.call.arguments.push_str(&more);
        more
    }
}

fn head(syntax: Syntax, held: &str) -> Result<Head<'_>, Stop> {
    match (syntax, held.trim_start().chars().next()) {
        (_, None) => Err(Stop::More),
        (Syntax::Tagged | Syntax::Llama3 | Syntax::Mistral, Some('{')) => json_head(held),
        (Syntax::Mistral, Some(c)) if c != '[' => named_head(held),
        (Syntax::DeepSeek, _) => separated_head(held),
        _ => Err(Stop::Never),
    }
}

/// `{"name": "…", "arguments": {`.
fn json_head(held: &str) -> Result<Head<'_>, Stop> {
    let mut rest = symbol(held, '{')?;
    let (mut id, mut name) = ("", None);
    loop {
        let (key, value) = string(rest)?;
        let value = symbol(value, ':')?;
        match (key, name) {
            ("arguments" | "parameters", Some(name)) => {
                let inside = symbol(value, '{')?;
                let bytes = held.len() - inside.len() - 1;
                return Ok(Head { id, name, bytes, compact: true, json: 0 });
            }
            ("name" | "id" | "type", _) => {
                let (text, after) = string(value)?;
                match key {
                    "name" => name = Some(text),
                    "id" => id = text,
                    _ => {}
                }
                rest = symbol(after, ',')?;
            }
            _ => return Err(Stop::Never),
        }
    }
}

/// `name[ARGS]{` or `name[CALL_ID]id[ARGS]{`.
fn named_head(held: &str) -> Result<Head<'_>, Stop> {
    let (head, rest) = before(held, ARGUMENTS)?;
    let head = head.trim();
    let (name, id) = head.split_once("[CALL_ID]").unwrap_or((head, ""));
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(Stop::Never);
    }
    let inside = symbol(rest, '{')?;
    Ok(Head { id, name, bytes: held.len() - inside.len() - 1, compact: false, json: held.len() - rest.len() })
}

/// `name<｜tool▁sep｜>{`, or ``kind<｜tool▁sep｜>name```json{``.
fn separated_head(held: &str) -> Result<Head<'_>, Stop> {
    let (first, rest) = before(held, SEPARATOR)?;
    let (name, json) = match symbol(rest, '{') {
        Err(Stop::Never) => before(rest, FENCE)?,
        _ => (first, rest),
    };
    let inside = symbol(json, '{')?;
    let name = name.trim();
    if name.is_empty() {
        return Err(Stop::Never);
    }
    let bytes = held.len() - inside.len() - 1;
    Ok(Head { id: "", name, bytes, compact: false, json: bytes })
}

/// What stands before a mark, unless it is too long, and what behind.
fn before<'a>(text: &'a str, mark: &str) -> Result<(&'a str, &'a str), Stop> {
    match text.split_once(mark) {
        Some((name, rest)) if name.len() <= LONGEST_NAME => Ok((name, rest)),
        None if text.len() <= LONGEST_NAME + mark.len() => Err(Stop::More),
        _ => Err(Stop::Never),
    }
}

/// What follows a symbol that white space may stand before.
fn symbol(text: &str, symbol: char) -> Result<&str, Stop> {
    let text = text.trim_start();
    text.strip_prefix(symbol).ok_or(if text.is_empty() { Stop::More } else { Stop::Never })
}

/// A string without escapes, and what follows it.
fn string(text: &str) -> Result<(&str, &str), Stop> {
    let text = symbol(text, '"')?;
    let end = text.find(['"', '\\']).ok_or(Stop::More)?;
    text[end..].strip_prefix('"').map(|after| (&text[..end], after)).ok_or(Stop::Never)
}
