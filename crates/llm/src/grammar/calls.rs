//! Grammars of tool calls, as models write them.

use serde_json::{Map, Value as Json, json};

use super::bounds::{SCHEMA_DEPTH, check_schema};
use super::compiler::checked_schema;
use super::{GrammarCompiler, GrammarError, GrammarMatcher};
use crate::chat_output::{AnswerFormat, CallSyntax, Syntax};
use crate::{Special, Tokenizer};

/// Which tools an answer has to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// Any or none: calls have to be correct.
    Auto,
    /// At least one.
    Required,
    /// This one.
    Function(String),
}

/// How many levels deeper a schema is nested within the schema of a call.
const WRAPPING: usize = 8;

impl GrammarCompiler {
    /// A matcher of answers that call tools, with arguments that are valid for the tools' schemas. With `parallel`, an answer
    /// may hold several calls. `None` if nothing can be said about the answer: with [`ToolChoice::Auto`], a grammar applies
    /// behind the mark that opens calls, and some formats have none.
    ///
    /// # Errors
    /// [`GrammarError::NoCalls`]: calls are required, and the format knows none, or not the function. As
    /// [`GrammarCompiler::compile`] for the tools' schemas.
    pub fn compile_calls(
        &self,
        format: &AnswerFormat,
        tools: &[Json],
        choice: &ToolChoice,
        parallel: bool,
    ) -> Result<Option<GrammarMatcher>, GrammarError> {
        let allowed: Vec<&Json> = tools
            .iter()
            .filter(|tool| !matches!(choice, ToolChoice::Function(name) if function(tool)["name"] != **name))
            .collect();
        let automatic = *choice == ToolChoice::Auto;
        if format.calls == Syntax::None || allowed.is_empty() {
            return if automatic { Ok(None) } else { Err(GrammarError::NoCalls(choice.clone())) };
        }
        let mut calls =
            Calls { tokenizer: self.tokenizer(), format, tools: Vec::new(), lark: String::new(), rules: 0 };
        for tool in allowed {
            calls.add(tool)?;
        }
        if automatic {
            let Some((mark, rest)) = calls.behind_the_mark(parallel)? else { return Ok(None) };
            calls.rule("start", &rest);
            return Ok(Some(self.compile_lark(calls.lark)?.after_each(mark)));
        }
        let answer = calls.answer(parallel)?;
        calls.rule("start", &answer);
        let matcher = self.compile_lark(calls.lark)?;
        Ok(Some(match format.reasoning_end() {
            Some(mark) => matcher.after(mark),
            None => matcher,
        }))
    }
}

fn function(tool: &Json) -> &Json {
    tool.get("function").unwrap_or(tool)
}

/// A tool that may be called.
struct Tool {
    name: String,
    /// The schema of its arguments, an object.
    parameters: Json,
}

struct Calls<'a> {
    tokenizer: &'a Tokenizer,
    format: &'a AnswerFormat,
    tools: Vec<Tool>,
    lark: String,
    rules: usize,
}

impl Calls<'_> {
    fn add(&mut self, tool: &Json) -> Result<(), GrammarError> {
        let function = function(tool);
        let Some(name) = function["name"].as_str().filter(|name| !name.is_empty()) else {
            return Err(GrammarError::Invalid { kind: "tool", reason: "it has no name".to_owned() });
        };
        let mut parameters = match function.get("parameters") {
            Some(Json::Object(parameters)) => parameters.clone(),
            None | Some(Json::Null) => Map::new(),
            Some(_) => {
                let reason = format!("the parameters of `{name}` are not an object");
                return Err(GrammarError::Invalid { kind: "tool", reason });
            }
        };
        if parameters.is_empty() {
            parameters.insert("properties".to_owned(), json!({}));
        }
        parameters.insert("type".to_owned(), "object".into());
        // Arguments that were not described would not be understood.
        if parameters.contains_key("properties") {
            parameters.entry("additionalProperties").or_insert(false.into());
        }
        let parameters = Json::from(parameters);
        check_schema(&parameters, SCHEMA_DEPTH)?;
        self.tools.push(Tool { name: name.to_owned(), parameters });
        Ok(())
    }

    fn rule(&mut self, name: &str, body: &str) {
        self.lark.push_str(&format!("{name}: {body}\n"));
    }

    fn new_rule(&mut self, attributes: &str, body: &str) -> String {
        let name = format!("r{}", self.rules);
        self.rules += 1;
        self.rule(&format!("{name}{attributes}"), body);
        name
    }

    /// A mark in an answer: a control token, or text.
    fn mark(&self, mark: &str) -> String {
        match self.tokenizer.encode(mark, Special::Parse).as_slice() {
            [token] if self.tokenizer.is_control(*token) => format!("<[{token}]>"),
            _ => quoted(mark),
        }
    }

    /// Free text up to a mark, and the mark.
    fn until(&mut self, mark: &str) -> String {
        let written = self.mark(mark);
        match written.starts_with('<') {
            true => format!("/(?s:.*)/ {written}"),
            false => self.new_rule(&format!("[suffix={written}]"), "/(?s:.*)/"),
        }
    }

    /// JSON with what a schema says.
    fn json(&mut self, schema: &Json) -> Result<String, GrammarError> {
        let schema = checked_schema(schema, SCHEMA_DEPTH + WRAPPING)?;
        Ok(self.new_rule("", &format!("%json {schema}")))
    }

    /// A JSON object with the name of a tool and its arguments, under this key.
    fn object(&self, arguments: &str) -> Json {
        let mut definitions = Map::new();
        let mut options = Vec::new();
        for (index, tool) in self.tools.iter().enumerate() {
            let place = format!("tool{index}");
            options.push(json!({
                "type": "object",
                "properties": {"name": {"const": tool.name}, arguments: {"$ref": format!("#/$defs/{place}")}},
                "required": ["name", arguments],
                "additionalProperties": false,
            }));
            definitions.insert(place.clone(), moved(&tool.parameters, &format!("#/$defs/{place}")));
        }
        json!({"$defs": definitions, "anyOf": options})
    }

    /// A choice among the tools.
    fn of_tools(
        &mut self,
        mut each: impl FnMut(&mut Self, &Tool) -> Result<String, GrammarError>,
    ) -> Result<String, GrammarError> {
        let tools = std::mem::take(&mut self.tools);
        let written: Result<Vec<String>, _> = tools.iter().map(|tool| each(self, tool)).collect();
        self.tools = tools;
        Ok(self.new_rule("", &written?.join(" | ")))
    }

    /// All of an answer.
    fn answer(&mut self, parallel: bool) -> Result<String, GrammarError> {
        let several = |call: String, between: &str| match parallel {
            true => format!("{call} ({between} {call})*"),
            false => call,
        };
        let calls = match self.format.calls {
            Syntax::Tagged => {
                let call = format!("{} {}", self.mark("<tool_call>"), self.tagged()?);
                let call = self.new_rule("", &call);
                several(call, "/\\n{0,2}/")
            }
            Syntax::Mistral if self.format.written == CallSyntax::Named => {
                let call = format!("{} {}", self.mark("[TOOL_CALLS]"), self.named()?);
                let call = self.new_rule("", &call);
                several(call, "")
            }
            Syntax::Mistral => format!("{} {}", self.mark("[TOOL_CALLS]"), self.array(parallel)?),
            Syntax::DeepSeek => {
                format!("{} {}", self.mark("<｜tool▁calls▁begin｜>"), self.deepseek(parallel)?)
            }
            Syntax::Llama3 => {
                let call = self.json(&self.object("parameters"))?;
                several(call, "/; ?/")
            }
            Syntax::Harmony => {
                let [channel, message, start] =
                    ["<|channel|>", "<|message|>", "<|start|>"].map(|mark| self.mark(mark));
                let text = self.until("<|end|>");
                let thought = format!("({channel} \"analysis\" {message} {text} {start} \"assistant\")?");
                format!("{thought} {channel} \"commentary to=functions.\" {}", self.harmony()?)
            }
            Syntax::None => String::new(),
        };
        Ok(match self.format.reasoning {
            Some([open, close]) if self.format.reasoning_end().is_none() => {
                let (open, rest) = (self.mark(open), self.until(close));
                format!("({open} {rest} /\\n{{0,2}}/)? {calls}")
            }
            _ => calls,
        })
    }

    /// The mark that opens calls, and what follows it.
    fn behind_the_mark(&mut self, parallel: bool) -> Result<Option<(&'static str, String)>, GrammarError> {
        Ok(Some(match self.format.calls {
            Syntax::Tagged => ("<tool_call>", self.tagged()?),
            Syntax::Mistral if self.format.written == CallSyntax::Named => ("[TOOL_CALLS]", self.named()?),
            Syntax::Mistral => ("[TOOL_CALLS]", self.array(parallel)?),
            Syntax::DeepSeek => ("<｜tool▁calls▁begin｜>", self.deepseek(parallel)?),
            Syntax::Harmony => (" to=functions.", self.harmony()?),
            Syntax::Llama3 | Syntax::None => return Ok(None),
        }))
    }

    /// Behind `<tool_call>`.
    fn tagged(&mut self) -> Result<String, GrammarError> {
        let close = self.mark("</tool_call>");
        let body = match self.format.written {
            CallSyntax::Functions => self.of_tools(|calls, tool| {
                let head = quoted(&format!("<function={}>", tool.name));
                let arguments = calls.arguments(tool, "<parameter=", ">\n", "\n</parameter>\n")?;
                Ok(format!("{head} \"\\n\" {arguments} \"</function>\""))
            })?,
            CallSyntax::ArgumentKeys => self.of_tools(|calls, tool| {
                let arguments =
                    calls.arguments(tool, "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n")?;
                Ok(format!("{} \"\\n\" {arguments}", quoted(&tool.name)))
            })?,
            _ => self.json(&self.object("arguments"))?,
        };
        Ok(format!("/\\n?/ {body} /\\n?/ {close}"))
    }

    /// Arguments in the order of the schema, each with its key between two marks, its value, and another mark. Strings are
    /// written without quotes.
    fn arguments(
        &mut self,
        tool: &Tool,
        open: &str,
        middle: &str,
        close: &str,
    ) -> Result<String, GrammarError> {
        let properties = tool.parameters["properties"].as_object().cloned().unwrap_or_default();
        let required = tool.parameters["required"].as_array().cloned().unwrap_or_default();
        let mut written = Vec::new();
        for (key, schema) in &properties {
            let choices = schema["enum"].as_array().filter(|values| values.iter().all(Json::is_string));
            let value = match (self.format.is_string(&tool.name, key), choices) {
                (true, Some(values)) => {
                    let values: Vec<String> = values.iter().filter_map(Json::as_str).map(quoted).collect();
                    format!("({}) {}", values.join(" | "), quoted(close))
                }
                (true, None) => self.until(close),
                (false, _) => {
                    let place =
                        format!("#/$defs/tool/properties/{}", key.replace('~', "~0").replace('/', "~1"));
                    let parameters = moved(&tool.parameters, "#/$defs/tool");
                    let value = self.json(&json!({"$defs": {"tool": parameters}, "$ref": place}))?;
                    format!("{value} {}", quoted(close))
                }
            };
            let argument = format!("{} {value}", quoted(&format!("{open}{key}{middle}")));
            let optional = !required.iter().any(|name| name == key);
            let argument = self.new_rule("", &argument);
            written.push(if optional { format!("{argument}?") } else { argument });
        }
        Ok(written.join(" "))
    }

    /// Behind `[TOOL_CALLS]`.
    fn array(&mut self, parallel: bool) -> Result<String, GrammarError> {
        let mut schema = self.object("arguments");
        let options = schema["anyOf"].take();
        let definitions = schema["$defs"].take();
        let mut array =
            json!({"$defs": definitions, "type": "array", "items": {"anyOf": options}, "minItems": 1});
        if !parallel {
            array["maxItems"] = 1.into();
        }
        self.json(&array)
    }

    /// Behind `[TOOL_CALLS]`, with the name first.
    fn named(&mut self) -> Result<String, GrammarError> {
        let mark = self.mark("[ARGS]");
        self.of_tools(|calls, tool| {
            Ok(format!("{} {mark} {}", quoted(&tool.name), calls.json(&tool.parameters)?))
        })
    }

    /// Behind `<｜tool▁calls▁begin｜>`.
    fn deepseek(&mut self, parallel: bool) -> Result<String, GrammarError> {
        let [begin, between, end, close] =
            ["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"]
                .map(|mark| self.mark(mark));
        let fenced = self.format.written == CallSyntax::Fenced;
        let call = self.of_tools(|calls, tool| {
            let arguments = calls.json(&tool.parameters)?;
            Ok(match fenced {
                true => format!(
                    "{begin} \"function\" {between} {} {arguments} \"\\n```\" {end}",
                    quoted(&format!("{}\n```json\n", tool.name))
                ),
                false => format!("{begin} {} {between} {arguments} {end}", quoted(&tool.name)),
            })
        })?;
        Ok(match parallel {
            true => format!("{call} (/\\n?/ {call})* {close}"),
            false => format!("{call} {close}"),
        })
    }

    /// Behind ` to=functions.`.
    fn harmony(&mut self) -> Result<String, GrammarError> {
        let [channel, constrain, message] =
            ["<|channel|>", "<|constrain|>", "<|message|>"].map(|mark| self.mark(mark));
        self.of_tools(|calls, tool| {
            let arguments = calls.json(&tool.parameters)?;
            let name = quoted(&tool.name);
            Ok(format!(
                "{name} ({channel} \"commentary\")? \" \"? ({constrain} \"json\")? {message} {arguments}"
            ))
        })
    }
}

/// A literal in Lark.
fn quoted(text: &str) -> String {
    Json::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A schema whose references to itself are to this place.
fn moved(schema: &Json, place: &str) -> Json {
    match schema {
        Json::Object(members) => {
            let member = |(key, value): (&String, &Json)| match value {
                Json::String(target) if key == "$ref" && target.starts_with('#') => {
                    let rest = target[1..].trim_end_matches('/');
                    (key.clone(), Json::from(format!("{place}{rest}")))
                }
                value => (key.clone(), moved(value, place)),
            };
            members.iter().map(member).collect::<Map<String, Json>>().into()
        }
        Json::Array(items) => items.iter().map(|item| moved(item, place)).collect::<Vec<Json>>().into(),
        value => value.clone(),
    }
}
