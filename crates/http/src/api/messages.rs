//! `/v1/messages`: Anthropic's API.

use std::sync::Arc;

use axum::response::Response;
use orlop_llm::{Content, Message, RenderOptions, ToolCall, ToolChoice};
use orlop_serve::RequestUsage;
use serde_json::{Value as Json, json};

use super::answer::{Answers, ChatForm, Finish, Finished, Piece};
use super::conversation::{CallRules, Conversation, continued, part_text};
use super::fields::Fields;
use super::stream::{Frames, Protocol};
use super::{chat, sampling, stream};
use crate::api_error::ApiError;
use crate::bounds::{self, LengthBound};
use crate::engine::generation::Generation;
use crate::front::{Front, Ready};
use crate::net::guard::Caller;

/// Stops have another name here.
const STOPS: LengthBound = LengthBound { field: "stop_sequences", ..bounds::STOPS };

/// A line that changes with every request and says nothing to a model: with it, no prefix would ever be in the cache.
const BILLING: &str = "x-anthropic-billing-header:";

/// A request that was read.
pub(crate) struct AskedMessage {
    generation: Generation,
    form: ChatForm,
    model: String,
    streams: bool,
}

/// Reads a request.
pub(crate) fn read(
    json: &Json,
    front: &Front,
    ready: &Ready,
    caller: Caller,
) -> Result<AskedMessage, ApiError> {
    let fields = Fields::of(json)?;
    let model = chat::model_name(fields, &ready.name)?;
    let mut generation = sampling::generation(fields, front, ready, caller)?;
    generation.stops = fields.texts(STOPS, bounds::STOP_BYTES)?;
    if fields.get(bounds::MAX_TOKENS.field).is_none() {
        return Err(ApiError::field("max_tokens", "`max_tokens` is required"));
    }
    let form = conversation(fields)?.prepare(ready, &mut generation, None)?;
    generation.answers = 1;
    Ok(AskedMessage { generation, form, model, streams: fields.flag("stream")?.unwrap_or(false) })
}

/// The chat of a request.
fn conversation(fields: Fields<'_>) -> Result<Conversation, ApiError> {
    let mut messages = Vec::new();
    let system = match fields.get("system") {
        None => String::new(),
        Some(system) => block_texts(system, "system")?.join("\n"),
    };
    let system: Vec<&str> = system.lines().filter(|line| !line.starts_with(BILLING)).collect();
    if !system.is_empty() {
        messages.push(Message::new("system", system.join("\n")));
    }
    let list = fields.list(bounds::MESSAGES)?.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| ApiError::field("messages", "`messages` must be a list with a message"))?;
    for (place, message) in list.iter().enumerate() {
        read_message(message, &format!("messages[{place}]"), &mut messages)?;
    }
    let (tools, calls) = tools(fields)?;
    let mut variables = serde_json::Map::new();
    if let Some(thinking) = fields.object("thinking")? {
        let enabled = thinking.get("type").and_then(Json::as_str) != Some("disabled");
        variables.insert("enable_thinking".to_owned(), enabled.into());
    }
    let prompt = continued(&messages);
    Ok(Conversation { messages, options: RenderOptions { prompt, tools, variables }, calls })
}

/// The texts of a content: one, or those of a list of blocks.
fn block_texts(json: &Json, field: &str) -> Result<Vec<String>, ApiError> {
    match json {
        Json::String(text) => Ok(vec![text.clone()]),
        Json::Array(blocks) => blocks.iter().map(|block| part_text(block, field)).collect(),
        _ => Err(ApiError::field(field, format!("`{field}` must be a text or a list of blocks"))),
    }
}

/// Adds a message; results of tools become messages of their own.
fn read_message(json: &Json, at: &str, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let fields = Fields::within(json, at)?;
    let role = fields
        .text("role")?
        .ok_or_else(|| ApiError::field(format!("{at}.role"), "each message must have a role"))?;
    let field = format!("{at}.content");
    let blocks = match fields.get("content") {
        Some(Json::Array(blocks)) => blocks,
        content => {
            let texts = block_texts(content.unwrap_or(&Json::Null), &field)?;
            messages.push(Message::new(role, texts.concat()));
            return Ok(());
        }
    };
    let (mut texts, mut calls, mut reasoning) = (Vec::new(), Vec::new(), String::new());
    for block in blocks {
        let text = |key: &str| block.get(key).and_then(Json::as_str).unwrap_or_default();
        match text("type") {
            "tool_use" => {
                let arguments = block.get("input").map_or_else(|| "{}".to_owned(), Json::to_string);
                let (id, name) = (text("id").to_owned(), text("name").to_owned());
                calls.push(ToolCall { id, name, arguments });
            }
            "tool_result" => {
                let result = block.get("content").filter(|content| !content.is_null());
                let result =
                    result.map(|content| block_texts(content, &field)).transpose()?.unwrap_or_default();
                messages.push(Message::tool_result(text("tool_use_id"), result.join("\n")));
            }
            "thinking" => reasoning.push_str(text("thinking")),
            "redacted_thinking" => {}
            _ => texts.push(part_text(block, &field)?),
        }
    }
    if texts.is_empty() && calls.is_empty() && reasoning.is_empty() {
        return Ok(());
    }
    let content = if texts.is_empty() { Content::Nothing } else { Content::Text(texts.join("\n")) };
    let reasoning = (!reasoning.is_empty()).then_some(reasoning);
    messages.push(Message { reasoning, tool_calls: calls, ..Message::new(role, "") });
    if let Some(last) = messages.last_mut() {
        last.content = content;
    }
    Ok(())
}

/// The tools in OpenAI's form, and which have to be called.
fn tools(fields: Fields<'_>) -> Result<(Vec<Json>, CallRules), ApiError> {
    let tools = fields
        .list(bounds::TOOLS)?
        .unwrap_or_default()
        .iter()
        .filter(|tool| tool.get("input_schema").is_some());
    let tools = tools.map(|tool| {
        json!({
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool.get("description").unwrap_or(&Json::Null),
                "parameters": tool["input_schema"],
            },
        })
    });
    let tools: Vec<Json> = tools.collect();
    if tools.iter().any(|tool| tool["function"]["name"].as_str().is_none_or(str::is_empty)) {
        return Err(ApiError::field("tools", "each tool must have a `name`"));
    }
    let choice = fields.object("tool_choice")?;
    let get = |key: &str| choice.and_then(|choice| choice.get(key));
    let one_call = get("disable_parallel_tool_use").and_then(Json::as_bool).unwrap_or(false);
    let rules = |choice| CallRules { choice, one_call };
    match (get("type").and_then(Json::as_str), get("name").and_then(Json::as_str)) {
        _ if choice.is_none() => Ok((tools, rules(ToolChoice::Auto))),
        (Some("auto"), _) => Ok((tools, rules(ToolChoice::Auto))),
        (Some("none"), _) => Ok((Vec::new(), rules(ToolChoice::Auto))),
        (Some("any"), _) => Ok((tools, rules(ToolChoice::Required))),
        (Some("tool"), Some(name)) => Ok((tools, rules(ToolChoice::Function(name.to_owned())))),
        _ => Err(ApiError::unsupported(
            "tool_choice",
            "a tool choice other than `auto`, `none`, `any` and `tool` is",
        )),
    }
}

/// Answers a request.
pub(crate) async fn answer(
    front: Arc<Front>,
    ready: Arc<Ready>,
    asked: AskedMessage,
) -> Result<Response, ApiError> {
    let AskedMessage { generation, form, model, streams } = asked;
    let prompt = generation.prompts.iter().map(Vec::len).sum();
    let ticket = front.submit(&ready, generation)?;
    let answers = Answers::chat(ticket, 1, &form);
    let writer = MessageStream::new(front, model, prompt);
    stream::response_or_whole(answers, writer, streams, MessageStream::message).await
}

/// `/v1/messages/count_tokens`.
pub(crate) fn count(ready: &Ready, json: &Json) -> Result<Json, ApiError> {
    Ok(json!({ "input_tokens": conversation(Fields::of(json)?)?.tokens(ready)?.len() }))
}

/// Events of a message, and the message that they make.
struct MessageStream {
    front: Arc<Front>,
    id: String,
    model: String,
    prompt: usize,
    cached: usize,
    begun: bool,
    /// The blocks so far; the last one may be open.
    blocks: Vec<Json>,
    open: bool,
    /// The open block is a call that is not complete.
    in_call: bool,
    finished: Option<Finished>,
}

impl MessageStream {
    fn new(front: Arc<Front>, model: String, prompt: usize) -> MessageStream {
        let id = front.id("msg_");
        MessageStream {
            front,
            id,
            model,
            prompt,
            cached: 0,
            begun: false,
            blocks: Vec::new(),
            open: false,
            in_call: false,
            finished: None,
        }
    }

    /// The message as it is now.
    fn message(&self) -> Json {
        let (reason, stop) = match &self.finished {
            None => (None, None),
            Some(Finished { finish: Finish::Length, .. }) => (Some("max_tokens"), None),
            Some(Finished { finish: Finish::Calls, .. }) => (Some("tool_use"), None),
            Some(Finished { stopped_by: Some(text), .. }) => (Some("stop_sequence"), Some(text)),
            Some(_) => (Some("end_turn"), None),
        };
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": self.blocks,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": self.usage(),
        })
    }

    fn usage(&self) -> Json {
        let usage = self.finished.as_ref().map_or(RequestUsage::default(), |finished| finished.usage);
        json!({
            "input_tokens": self.prompt - self.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self.cached,
            "output_tokens": usage.generated,
        })
    }

    fn begin_message(&mut self, frames: &mut Frames) {
        if !std::mem::replace(&mut self.begun, true) {
            let event = json!({ "type": "message_start", "message": self.message() });
            frames.named("message_start", &event);
        }
    }

    /// Opens a block, unless one of that type is open.
    fn open(&mut self, block: Json, frames: &mut Frames) {
        self.begin_message(frames);
        if self.open && self.blocks.last().is_some_and(|last| last["type"] == block["type"]) {
            return;
        }
        self.close(frames);
        let event =
            json!({ "type": "content_block_start", "index": self.blocks.len(), "content_block": block });
        frames.named("content_block_start", &event);
        self.blocks.push(block);
        self.open = true;
    }

    fn close(&mut self, frames: &mut Frames) {
        if std::mem::replace(&mut self.open, false) {
            let event = json!({ "type": "content_block_stop", "index": self.blocks.len() - 1 });
            frames.named("content_block_stop", &event);
        }
    }

    fn begin_call(&mut self, id: String, name: &str, frames: &mut Frames) {
        self.close(frames);
        let id = if id.is_empty() { self.front.id("toolu_") } else { id };
        self.open(json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), frames);
        self.in_call = true;
    }

    /// Adds to the arguments of the open call.
    fn add_input(&mut self, text: &str, frames: &mut Frames) {
        let delta = json!({ "type": "input_json_delta", "partial_json": text });
        let event = json!({ "type": "content_block_delta", "index": self.blocks.len() - 1, "delta": delta });
        frames.named("content_block_delta", &event);
    }

    /// Adds text to a key of the open block.
    fn add(&mut self, key: &str, kind: &str, text: &str, frames: &mut Frames) {
        let index = self.blocks.len() - 1;
        if let Some(Json::String(known)) = self.blocks.last_mut().and_then(|block| block.get_mut(key)) {
            known.push_str(text);
        }
        let mut delta = json!({ "type": kind });
        delta[key] = text.into();
        let event = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        frames.named("content_block_delta", &event);
    }
}

impl Protocol for MessageStream {
    fn begin(&mut self, _: &mut Frames) {}

    fn piece(&mut self, _: usize, piece: Piece, frames: &mut Frames) {
        match piece {
            Piece::Admitted { cached } => {
                self.cached = cached;
                self.begin_message(frames);
            }
            Piece::Text { text, .. } => {
                self.open(json!({ "type": "text", "text": "" }), frames);
                self.add("text", "text_delta", &text, frames);
            }
            Piece::Reasoning(text) => {
                self.open(json!({ "type": "thinking", "thinking": "", "signature": "" }), frames);
                self.add("thinking", "thinking_delta", &text, frames);
            }
            Piece::CallBegins { id, name } => self.begin_call(id, &name, frames),
            Piece::CallArguments(text) => self.add_input(&text, frames),
            Piece::Call(call) => {
                if !std::mem::take(&mut self.in_call) {
                    self.begin_call(call.id, &call.name, frames);
                    self.add_input(&call.arguments, frames);
                    self.in_call = false;
                }
                if let Some(block) = self.blocks.last_mut() {
                    block["input"] = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
                }
            }
            Piece::End(finished) => {
                self.begin_message(frames);
                self.close(frames);
                self.finished = Some(finished);
                let message = self.message();
                let event = json!({
                    "type": "message_delta",
                    "delta": { "stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"] },
                    "usage": message["usage"],
                });
                frames.named("message_delta", &event);
            }
        }
    }

    fn finish(&mut self, frames: &mut Frames) {
        frames.named("message_stop", &json!({ "type": "message_stop" }));
    }

    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.named("error", &error.json());
    }
}
