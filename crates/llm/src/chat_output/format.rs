//! How a model writes reasoning and tool calls, by the marks in its template.

use serde_json::Value as Json;

/// How a model writes reasoning and tool calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerFormat {
    /// The marks before and after reasoning.
    pub(crate) reasoning: Option<[&'static str; 2]>,
    pub(crate) calls: Syntax,
    pub(crate) written: CallSyntax,
    /// Functions and those of their parameters that are strings.
    pub(super) strings: Vec<(String, String)>,
    pub(super) begins_in_reasoning: bool,
}

/// How calls are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Not at all.
    #[default]
    None,
    /// `<tool_call>…</tool_call>`, with JSON (Hermes, Qwen), `<function=…>` (Qwen3-Coder) or `<arg_key>` (GLM) inside.
    Tagged,
    /// `[TOOL_CALLS]` with a JSON array, or with `name[ARGS]{…}`.
    Mistral,
    /// `<｜tool▁calls▁begin｜>…<｜tool▁calls▁end｜>`.
    DeepSeek,
    /// The answer is `{"name": …, "parameters": …}`.
    Llama3,
    /// Messages in channels: [harmony](https://github.com/openai/harmony).
    Harmony,
}

/// How a call is written between the marks, where a syntax has several ways. All of them are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallSyntax {
    /// `{"name": …, "arguments": …}`.
    #[default]
    Json,
    /// `<function=…>` with `<parameter=…>`.
    Functions,
    /// `<arg_key>` and `<arg_value>`.
    ArgumentKeys,
    /// `name[ARGS]{…}`.
    Named,
    /// The name, and JSON in a fenced block.
    Fenced,
}

/// What the parser is reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Text,
    Reasoning,
    Call,
    /// Of a harmony message.
    Header,
    /// A harmony message.
    Message(Content),
}

/// What a harmony message holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Text,
    Reasoning,
    Call(String),
}

/// What ends a harmony message.
pub(super) const MESSAGE_ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"];
const MESSAGE: &str = "<|message|>";
/// Longer names are none.
pub(super) const LONGEST_NAME: usize = 256;
/// Longer headers are none.
const LONGEST_HEADER: usize = 256;

impl AnswerFormat {
    /// The format of a template's model. Calls are looked for only if there are tools.
    pub fn of_template(template: &str, tools: &[Json]) -> AnswerFormat {
        let has = |mark: &str| template.contains(mark);
        let calls = match () {
            () if has("<|channel|>") && has(MESSAGE) => Syntax::Harmony,
            () if tools.is_empty() => Syntax::None,
            () if has("[TOOL_CALLS]") => Syntax::Mistral,
            () if has("<｜tool▁calls▁begin｜>") => Syntax::DeepSeek,
            () if has("<tool_call>") => Syntax::Tagged,
            () if has("<|python_tag|>") || has("ipython") => Syntax::Llama3,
            () => Syntax::None,
        };
        let written = match () {
            () if has("<function=") => CallSyntax::Functions,
            () if has("<arg_key>") => CallSyntax::ArgumentKeys,
            () if has("[ARGS]") => CallSyntax::Named,
            () if has("```json") => CallSyntax::Fenced,
            () => CallSyntax::Json,
        };
        let reasoning = match () {
            () if calls == Syntax::Harmony => None,
            () if has("</think>") || has("<think>") => Some(["<think>", "</think>"]),
            () if has("[THINK]") => Some(["[THINK]", "[/THINK]"]),
            () => None,
        };
        let strings = tools.iter().flat_map(string_parameters).collect();
        AnswerFormat { reasoning, calls, written, strings, begins_in_reasoning: false }
    }

    /// The format of the answer to this prompt: some templates open the reasoning themselves.
    #[must_use]
    pub fn after_prompt(mut self, prompt: &str) -> AnswerFormat {
        self.begins_in_reasoning = self.reasoning.is_some_and(|[open, _]| prompt.trim_end().ends_with(open));
        self
    }

    /// What ends the reasoning that the answer begins with, if the prompt has opened it.
    pub fn reasoning_end(&self) -> Option<&'static str> {
        self.reasoning.filter(|_| self.begins_in_reasoning).map(|[_, close]| close)
    }

    /// What may follow text.
    pub(super) fn marks(&self) -> Vec<(&'static str, Mode)> {
        let calls: &[(&str, Mode)] = match self.calls {
            Syntax::None => &[],
            Syntax::Tagged => &[("<tool_call>", Mode::Call)],
            Syntax::Mistral => &[("[TOOL_CALLS]", Mode::Call)],
            Syntax::DeepSeek => &[("<｜tool▁calls▁begin｜>", Mode::Call)],
            Syntax::Llama3 => &[("<|python_tag|>", Mode::Call)],
            Syntax::Harmony => &[("<|start|>", Mode::Header), ("<|channel|>", Mode::Header)],
        };
        let reasoning = self.reasoning.map(|[open, _]| (open, Mode::Reasoning));
        reasoning.into_iter().chain(calls.iter().cloned()).collect()
    }

    /// Whether a function's parameter is a string.
    pub(crate) fn is_string(&self, function: &str, parameter: &str) -> bool {
        self.strings.iter().any(|(known, name)| known == function && name == parameter)
    }
}

fn string_parameters(tool: &Json) -> Vec<(String, String)> {
    let function = tool.get("function").unwrap_or(tool);
    let name = function["name"].as_str().unwrap_or_default();
    let properties = function["parameters"]["properties"].as_object().into_iter().flatten();
    let strings = properties.filter(|(_, schema)| schema["type"] == "string");
    strings.map(|(parameter, _)| (name.to_owned(), parameter.clone())).collect()
}

/// Whether a mark opens the header of a harmony message.
pub(super) fn opens(mark: &str) -> bool {
    matches!(mark, "<|start|>" | "<|channel|>")
}

/// The bytes of a header and what its message holds; `None` if it goes on, an error if it is none.
pub(super) fn header(held: &str) -> Option<Result<(usize, Content), ()>> {
    let Some(at) = held.find(MESSAGE).filter(|at| *at <= LONGEST_HEADER) else {
        return (held.len() > LONGEST_HEADER + MESSAGE.len()).then_some(Err(()));
    };
    let words = held[..at].replace("<|channel|>", " ").replace("<|constrain|>", " ");
    let (mut content, mut recipient) = (Content::Text, None);
    for word in words.split_whitespace() {
        match word {
            "analysis" => content = Content::Reasoning,
            "assistant" | "final" | "commentary" | "json" | "code" => {}
            _ => match word.strip_prefix("to=") {
                Some(name) => recipient = Some(name.strip_prefix("functions.").unwrap_or(name).to_owned()),
                None => return Some(Err(())),
            },
        }
    }
    Some(Ok((at + MESSAGE.len(), recipient.map_or(content, Content::Call))))
}
