//! What stands behind the opening mark of calls: one call, or several, each given as it comes.

use serde_json::Value as Json;

use super::AnswerPart;
use super::call_stream::{Begun, CallStream};
use super::format::{AnswerFormat, Syntax};
use super::json_end::{JsonEnd, JsonProgress};
use super::tagged_call::{FUNCTION, TagProgress, TaggedCall};
use crate::ToolCall;

pub(super) const CLOSE: &str = "</tool_call>";
pub(super) const CALL_BEGIN: &str = "<｜tool▁call▁begin｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
const CALLS_END: &str = "<｜tool▁calls▁end｜>";
const FENCE: &str = "```";

/// Reads calls one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct CallBody {
    state: State,
    list: List,
    /// Calls that were given.
    calls: usize,
}

/// What comes next.
#[derive(Clone, Debug, Default)]
enum State {
    /// A call, if there is one.
    #[default]
    Before,
    /// `{"name": …, "arguments": …}`.
    Object { json: JsonEnd, stream: CallStream },
    /// A name, and JSON.
    Named { json: JsonEnd, stream: CallStream },
    /// Tags.
    Tagged(TaggedCall),
    /// What may follow a call.
    Behind,
}

/// How several calls are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    /// One behind the other, if there are several.
    #[default]
    Plain,
    /// A JSON array.
    Array,
    /// A JSON array that is closed.
    Closed,
}

/// What is known of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More of the answer is needed.
    More,
    /// There is more to read.
    Again,
    /// What comes next is no call; if none was given, neither was what came before.
    NoCall,
    /// The calls are complete.
    Done,
}

impl CallBody {
    /// Reads a part of `held`, and takes it away. What may still be text after all is put behind `opening`.
    pub(super) fn advance(
        &mut self,
        format: &AnswerFormat,
        held: &mut String,
        opening: &mut String,
        end: bool,
        parts: &mut Vec<AnswerPart>,
    ) -> Progress {
        let progress = match &mut self.state {
            State::Before => self.before(format, held, opening),
            State::Behind => self.behind(format, held, opening),
            State::Object { json, stream } => {
                let progress = json.find(held);
                stream.begin(format.calls, held, parts);
                stream.follow(&held[..json.valid(held)], parts);
                let needs_arguments = format.calls == Syntax::Llama3;
                let (call, bytes) = match progress {
                    JsonProgress::More if !end => return Progress::More,
                    JsonProgress::Ends(bytes) => (json_call(&held[..bytes], needs_arguments), bytes),
                    JsonProgress::More | JsonProgress::Invalid => (None, 0),
                };
                let given = stream.given().map(|(call, read)| (call.clone(), read));
                self.give(call.map(|call| (call, bytes)), given, held, opening, parts)
            }
            State::Named { json, stream } => match stream.begin(format.calls, held, parts) {
                Begun::More if !end => return Progress::More,
                Begun::More | Begun::Never => Progress::NoCall,
                Begun::Within(start) => {
                    let progress = json.find(&held[start..]);
                    stream.follow(&held[..start + json.valid(&held[start..])], parts);
                    let given = stream.given().map(|(call, read)| (call.clone(), read));
                    match progress {
                        JsonProgress::More if !end => return Progress::More,
                        JsonProgress::Ends(_) => self.give(given.clone(), given, held, opening, parts),
                        JsonProgress::More | JsonProgress::Invalid => {
                            self.give(None, given, held, opening, parts)
                        }
                    }
                }
            },
            State::Tagged(call) => match call.advance(format, held, end, parts) {
                TagProgress::More => return Progress::More,
                TagProgress::NoCall => Progress::NoCall,
                TagProgress::Ends { call, is_whole } => {
                    let given = Some((call, 0));
                    self.give(given.clone().filter(|_| is_whole), given, held, opening, parts)
                }
            },
        };
        match progress {
            // Nothing more comes.
            Progress::More if end => Progress::NoCall,
            progress => progress,
        }
    }

    /// Whether no call was given.
    pub(super) fn is_empty(&self) -> bool {
        self.calls == 0
    }

    /// Gives a call: as it was read whole, or as far as it was given while it came.
    fn give(
        &mut self,
        whole: Option<(ToolCall, usize)>,
        given: Option<(ToolCall, usize)>,
        held: &mut String,
        opening: &mut String,
        parts: &mut Vec<AnswerPart>,
    ) -> Progress {
        let (call, bytes, progress) = match (whole, given) {
            (None, None) => return Progress::NoCall,
            // It cannot be taken back.
            (None, Some((call, read))) => (call, read, Progress::Done),
            (Some((_, bytes)), Some((call, _))) => (call, bytes, Progress::Again),
            (Some((call, bytes)), None) => (call, bytes, Progress::Again),
        };
        parts.push(AnswerPart::Call(call));
        held.drain(..bytes);
        opening.clear();
        self.calls += 1;
        self.state = State::Behind;
        progress
    }

    fn before(&mut self, format: &AnswerFormat, held: &mut String, opening: &mut String) -> Progress {
        let space = held.len() - held.trim_start().len();
        let Some(first) = held[space..].chars().next() else { return Progress::More };
        let object = || State::Object { json: JsonEnd::default(), stream: CallStream::default() };
        let named = || State::Named { json: JsonEnd::default(), stream: CallStream::default() };
        self.state = match (format.calls, self.list, first) {
            (Syntax::DeepSeek, ..) => match beginning(&held[space..], CALL_BEGIN) {
                Beginning::Whole => {
                    pass(held, space + CALL_BEGIN.len(), opening);
                    named()
                }
                Beginning::Part => return Progress::More,
                Beginning::No => return Progress::NoCall,
            },
            (_, _, '{') => object(),
            (_, List::Plain, '[') => {
                pass(held, space + 1, opening);
                self.list = List::Array;
                return Progress::Again;
            }
            (_, List::Array, ']') if self.calls == 0 => {
                held.drain(..=space);
                opening.clear();
                self.list = List::Closed;
                State::Behind
            }
            (_, List::Array, _) => return Progress::NoCall,
            (Syntax::Tagged, ..) => State::Tagged(TaggedCall::new(first == '<')),
            (Syntax::Mistral, ..) => named(),
            _ => return Progress::NoCall,
        };
        Progress::Again
    }

    fn behind(&mut self, format: &AnswerFormat, held: &mut String, opening: &mut String) -> Progress {
        let space = held.len() - held.trim_start().len();
        let rest = &held[space..];
        if self.list == List::Array {
            return match rest.chars().next() {
                None => Progress::More,
                Some(',') => {
                    pass(held, space + 1, opening);
                    self.state = State::Before;
                    Progress::Again
                }
                Some(']') => {
                    held.drain(..=space);
                    self.list = List::Closed;
                    Progress::Again
                }
                Some(_) => Progress::Done,
            };
        }
        let (passed, last, next): (&[&str], &str, &str) = match format.calls {
            Syntax::Tagged if self.list == List::Plain => (&[], CLOSE, FUNCTION),
            Syntax::Tagged => (&[], CLOSE, CLOSE),
            Syntax::DeepSeek => (&[FENCE, CALL_END], CALLS_END, CALL_BEGIN),
            _ => return Progress::Done,
        };
        if rest.starts_with(last) {
            held.drain(..space + last.len());
            return Progress::Done;
        }
        if let Some(mark) = passed.iter().find(|mark| rest.starts_with(**mark)) {
            held.drain(..space + mark.len());
            return Progress::Again;
        }
        if rest.starts_with(next) {
            self.state = State::Before;
            return Progress::Again;
        }
        // Marks may be missing.
        let mut marks = passed.iter().copied().chain([last, next]);
        if marks.any(|mark| mark.starts_with(rest)) { Progress::More } else { Progress::Done }
    }
}

/// How much of a mark a text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    Whole,
    /// The text ends within it.
    Part,
    No,
}

pub(super) fn beginning(text: &str, mark: &str) -> Beginning {
    match (text.starts_with(mark), mark.starts_with(text)) {
        (true, _) => Beginning::Whole,
        (false, true) => Beginning::Part,
        (false, false) => Beginning::No,
    }
}

/// Moves the beginning of a text behind another one.
fn pass(held: &mut String, bytes: usize, opening: &mut String) {
    opening.extend(held.drain(..bytes));
}

fn json_call(text: &str, needs_arguments: bool) -> Option<ToolCall> {
    let item: Json = serde_json::from_str(text).ok()?;
    let function = item.get("function").filter(|function| function.is_object()).unwrap_or(&item);
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
