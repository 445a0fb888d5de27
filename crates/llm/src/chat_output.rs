//! The parts of a model's answer: text, reasoning and tool calls, found while the answer is generated.

mod call_body;
mod call_stream;
mod format;
mod json_end;
mod tagged_call;

use crate::ToolCall;
use call_body::{CallBody, Progress};
use call_stream::CallStream;
pub use format::AnswerFormat;
pub(crate) use format::{CallSyntax, Syntax};
use format::{Content, Mode};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// More of what the model says.
    Text(String),
    /// More of what it thinks before it says something.
    Reasoning(String),
    /// A tool call begins. Its id is empty unless the model gave one.
    CallBegins {
        /// Its id.
        id: String,
        /// The function.
        name: String,
    },
    /// More of the arguments of the call that has begun, as JSON.
    CallArguments(String),
    /// A tool call is complete, whether its beginning was given or not.
    Call(ToolCall),
}

/// Takes an answer piece by piece and gives its parts as soon as they are certain.
///
/// The parts do not depend on how the answer is cut into pieces, except that text and reasoning come in more or fewer
/// parts, and arguments, too. A call that cannot be read stays text, unless its beginning was given: then it ends there. White
/// space next to calls and around reasoning is left out.
///
/// The marks of calls and reasoning may be control tokens, so pieces are written with
/// [`Tokenizer::decode_special`](crate::Tokenizer::decode_special), without the token that ends the answer.
///
/// ```
/// use orlop_llm::{AnswerFormat, AnswerParser, AnswerPart};
///
/// let template = "… <think> … <tool_call> …"; // of the model's file
/// let tools = [serde_json::json!({"type": "function", "function": {"name": "add"}})];
/// let mut parser = AnswerParser::new(AnswerFormat::of_template(template, &tools));
/// let mut parts = parser.push("<think>A sum.</think>Let me see.\n<tool_ca");
/// parts.extend(parser.push("ll>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>"));
/// parts.extend(parser.finish());
/// assert_eq!(parts[0], AnswerPart::Reasoning("A sum.".into()));
/// assert_eq!(parts[1], AnswerPart::Text("Let me see.".into()));
/// assert_eq!(parts[2], AnswerPart::CallBegins { id: String::new(), name: "add".into() });
/// assert_eq!(parts[3], AnswerPart::CallArguments(r#"{"a":1}"#.into()));
/// let AnswerPart::Call(call) = &parts[4] else { panic!() };
/// assert_eq!((call.name.as_str(), call.arguments.as_str()), ("add", r#"{"a":1}"#));
/// ```
#[derive(Clone, Debug)]
pub struct AnswerParser {
    format: AnswerFormat,
    mode: Mode,
    /// Text that is not certain yet.
    held: String,
    /// What opened a call, with the white space before it: text after all if the call cannot be read.
    opening: String,
    /// The calls that are being read.
    body: CallBody,
    /// The call of a harmony message.
    stream: CallStream,
    /// Leaves out white space that comes next.
    skip_space: bool,
    /// Where a call without an opening mark may begin.
    at_start: bool,
    after_call: bool,
}

impl AnswerParser {
    /// A parser at the beginning of an answer.
    pub fn new(format: AnswerFormat) -> AnswerParser {
        let mode = if format.begins_in_reasoning { Mode::Reasoning } else { Mode::Text };
        AnswerParser {
            skip_space: mode == Mode::Reasoning,
            format,
            mode,
            held: String::new(),
            opening: String::new(),
            body: CallBody::default(),
            stream: CallStream::default(),
            at_start: true,
            after_call: false,
        }
    }

    /// The parts that this piece makes certain.
    pub fn push(&mut self, piece: &str) -> Vec<AnswerPart> {
        self.held.push_str(piece);
        self.advance(false)
    }

    /// The end of the answer: what was held back.
    pub fn finish(&mut self) -> Vec<AnswerPart> {
        self.advance(true)
    }

    fn advance(&mut self, end: bool) -> Vec<AnswerPart> {
        let mut parts = Vec::new();
        loop {
            let goes_on = match self.mode.clone() {
                Mode::Text => self.text(end, &mut parts),
                Mode::Reasoning => self.reasoning(end, &mut parts),
                Mode::Call => self.call(end, &mut parts),
                Mode::Header => self.header(end, &mut parts),
                Mode::Message(content) => self.message(&content, end, &mut parts),
            };
            if !goes_on {
                return parts;
            }
        }
    }

    /// Drops white space if it is to be left out; false if nothing else has come yet.
    fn past_space(&mut self) -> bool {
        if self.skip_space {
            let space = self.held.len() - self.held.trim_start().len();
            self.held.drain(..space);
            self.skip_space = self.held.is_empty();
        }
        !self.skip_space
    }

    fn text(&mut self, end: bool, parts: &mut Vec<AnswerPart>) -> bool {
        if !self.past_space() {
            return false;
        }
        if self.at_start && self.format.calls == Syntax::Llama3 {
            let between = |c: char| c.is_whitespace() || (c == ';' && self.after_call);
            let space = self.held.len() - self.held.trim_start_matches(between).len();
            if space == self.held.len() && !end {
                return false;
            }
            self.at_start = false;
            if self.held[space..].starts_with('{') {
                self.opening = self.held.drain(..space).collect();
                return self.enter(Mode::Call);
            }
        }
        let marks = self.format.marks();
        let found = marks.iter().filter_map(|(mark, mode)| Some((self.held.find(mark)?, *mark, mode)));
        match found.min_by_key(|(at, ..)| *at) {
            Some((at, mark, mode)) => {
                let text = self.held[..at].trim_end().len();
                give(AnswerPart::Text, &self.held[..text], parts);
                self.opening = self.held[text..at + mark.len()].to_owned();
                self.held.drain(..at + mark.len());
                self.enter(mode.clone())
            }
            None => {
                let names: Vec<&str> = marks.iter().map(|(mark, _)| *mark).collect();
                self.give_certain(AnswerPart::Text, &names, end, parts)
            }
        }
    }

    fn reasoning(&mut self, end: bool, parts: &mut Vec<AnswerPart>) -> bool {
        if !self.past_space() {
            return false;
        }
        let close = self.format.reasoning.map_or("", |[_, close]| close);
        let Some(at) = self.held.find(close) else {
            return self.give_certain(AnswerPart::Reasoning, &[close], end, parts);
        };
        give(AnswerPart::Reasoning, self.held[..at].trim_end(), parts);
        self.held.drain(..at + close.len());
        self.skip_space = true;
        self.enter(Mode::Text)
    }

    fn call(&mut self, end: bool, parts: &mut Vec<AnswerPart>) -> bool {
        let AnswerParser { format, held, opening, body, .. } = self;
        match body.advance(format, held, opening, end, parts) {
            Progress::More => false,
            Progress::Again => true,
            Progress::NoCall if body.is_empty() => self.reopen(parts),
            Progress::NoCall | Progress::Done => {
                give(AnswerPart::Text, opening, parts);
                (self.skip_space, self.at_start, self.after_call) = (opening.is_empty(), true, true);
                self.enter(Mode::Text)
            }
        }
    }

    /// What was taken for the beginning of a call is text.
    fn reopen(&mut self, parts: &mut Vec<AnswerPart>) -> bool {
        give(AnswerPart::Text, &self.opening, parts);
        self.enter(Mode::Text)
    }

    fn header(&mut self, end: bool, parts: &mut Vec<AnswerPart>) -> bool {
        match format::header(&self.held) {
            Some(Ok((bytes, content))) => {
                self.held.drain(..bytes);
                self.enter(Mode::Message(content))
            }
            None if !end => false,
            _ => self.reopen(parts),
        }
    }

    fn message(&mut self, content: &Content, end: bool, parts: &mut Vec<AnswerPart>) -> bool {
        let part = match content {
            Content::Reasoning => AnswerPart::Reasoning,
            _ => AnswerPart::Text,
        };
        let found = format::MESSAGE_ENDS.iter().filter_map(|mark| Some((self.held.find(mark)?, *mark)));
        let found = found.min();
        let Some((at, mark)) = found.or((end && !self.held.is_empty()).then_some((self.held.len(), "")))
        else {
            let Content::Call(name) = content else {
                return self.give_certain(part, &format::MESSAGE_ENDS, end, parts);
            };
            let certain = certain(&self.held, &format::MESSAGE_ENDS);
            parts.extend(self.stream.advance_named(name, &self.held[..certain]));
            return false;
        };
        match content {
            Content::Call(name) => {
                parts.extend(self.stream.advance_named(name, self.held[..at].trim_end()));
                let (id, name, arguments) = (String::new(), name.clone(), String::new());
                let given = self.stream.given().map(|(call, _)| call.clone());
                parts.push(AnswerPart::Call(given.unwrap_or(ToolCall { id, name, arguments })));
            }
            _ => give(part, &self.held[..at], parts),
        }
        self.opening = mark.to_owned();
        self.held.drain(..at + mark.len());
        self.skip_space = !format::opens(mark);
        self.enter(if format::opens(mark) { Mode::Header } else { Mode::Text })
    }

    fn enter(&mut self, mode: Mode) -> bool {
        self.body = CallBody::default();
        self.stream = CallStream::default();
        self.skip_space |= mode == Mode::Reasoning;
        self.mode = mode;
        true
    }

    /// Gives what cannot be the beginning of a mark, nor white space before one.
    fn give_certain(
        &mut self,
        part: fn(String) -> AnswerPart,
        marks: &[&str],
        end: bool,
        parts: &mut Vec<AnswerPart>,
    ) -> bool {
        let certain = if end { self.held.len() } else { certain(&self.held, marks) };
        give(part, &self.held[..certain], parts);
        self.held.drain(..certain);
        false
    }
}

/// How many bytes are neither the beginning of a mark nor white space before one.
fn certain(held: &str, marks: &[&str]) -> usize {
    let begins = |mark: &&str| {
        let places =
            (held.len().saturating_sub(mark.len())..held.len()).filter(|at| held.is_char_boundary(*at));
        places.into_iter().find(|at| mark.starts_with(&held[*at..])).unwrap_or(held.len())
    };
    match marks.iter().map(begins).min() {
        Some(first) => held[..first].trim_end().len(),
        None => held.len(),
    }
}

fn give(part: fn(String) -> AnswerPart, text: &str, parts: &mut Vec<AnswerPart>) {
    if !text.is_empty() {
        parts.push(part(text.to_owned()));
    }
}

#[cfg(test)]
mod tests;
