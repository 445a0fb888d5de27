//! `/v1/responses`: OpenAI's newer API. Nothing is stored: a client sends the whole conversation.

use std::sync::Arc;

use axum::response::Response;
use orlop_llm::{ChatPrompt, Content, Message, RenderOptions, ToolCall};
use serde_json::{Map, Value as Json, json};

use super::answer::{Answers, ChatForm, Finish, Finished, Piece, Totals};
use super::conversation::{CallRules, Conversation, choose, content};
use super::fields::Fields;
use super::stream::{Frames, Protocol};
use super::structure::Structure;
use super::{chat, sampling, stream};
use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::generation::Generation;
use crate::front::{Front, Ready, now};
use crate::net::guard::Caller;

/// Fields of the request that the response repeats, and what they are if they are not there.
fn repeated(fields: Fields<'_>) -> Map<String, Json> {
    let usual = [
        ("instructions", Json::Null),
        ("max_output_tokens", Json::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", json!(true)),
        ("previous_response_id", Json::Null),
        ("reasoning", json!({ "effort": null, "summary": null })),
        ("temperature", json!(1.0)),
        ("text", json!({ "format": { "type": "text" } })),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_p", json!(1.0)),
        ("truncation", json!("disabled")),
    ];
    let repeat =
        |(field, usual): (&str, Json)| (field.to_owned(), fields.get(field).cloned().unwrap_or(usual));
    usual.into_iter().map(repeat).collect()
}

/// A request that was read.
pub(crate) struct Asked {
    generation: Generation,
    form: ChatForm,
    model: String,
    streams: bool,
    repeated: Map<String, Json>,
}

/// Reads a request.
pub(crate) fn read(json: &Json, front: &Front, ready: &Ready, caller: Caller) -> Result<Asked, ApiError> {
    let fields = Fields::of(json)?;
    let model = chat::model_name(fields, &ready.name)?;
    let wanted = Structure::of_text_format(fields)?;
    let mut generation = sampling::generation(fields, front, ready, caller)?;
    generation.answers = 1;
    let form = conversation(fields)?.prepare(ready, &mut generation, wanted.as_ref())?;
    let (streams, repeated) = (fields.flag("stream")?.unwrap_or(false), repeated(fields));
    Ok(Asked { generation, form, model, streams, repeated })
}

/// The chat of a request.
fn conversation(fields: Fields<'_>) -> Result<Conversation, ApiError> {
    for field in ["previous_response_id", "conversation"] {
        if fields.get(field).is_some() {
            return Err(ApiError::unsupported(
                field,
                "responses are not stored: send the whole conversation; this is",
            ));
        }
    }
    let mut messages = Vec::new();
    if let Some(instructions) = fields.text("instructions")? {
        messages.push(Message::new("system", instructions));
    }
    match fields.get("input") {
        Some(Json::String(text)) => messages.push(Message::new("user", text.as_str())),
        Some(Json::Array(items)) if !items.is_empty() => {
            super::fields::within(items.len(), bounds::MESSAGES)?;
            for (place, item) in items.iter().enumerate() {
                read_item(item, &format!("input[{place}]"), &mut messages)?;
            }
        }
        _ => return Err(ApiError::field("input", "`input` must be a text or a list with an item")),
    }
    let mut variables = Map::new();
    let effort = fields.object("reasoning")?.and_then(|reasoning| reasoning.get("effort")?.as_str());
    if let Some(effort) = effort {
        variables.insert("reasoning_effort".to_owned(), effort.into());
    }
    let (tools, calls) = tools(fields)?;
    let options = RenderOptions { prompt: ChatPrompt::Answer, tools, variables };
    Ok(Conversation { messages, options, calls })
}

/// Whether a message has what the model thought, and not yet what it said.
fn is_only_reasoning(message: &Message) -> bool {
    message.reasoning.is_some() && message.content == Content::Nothing && message.tool_calls.is_empty()
}

fn read_item(json: &Json, at: &str, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let fields = Fields::within(json, at)?;
    let text = |field: &str| Ok::<String, ApiError>(fields.text(field)?.unwrap_or_default().to_owned());
    match fields.text("type")?.unwrap_or("message") {
        "message" => {
            let role = text("role")?;
            let role = match role.as_str() {
                "" => return Err(ApiError::field(format!("{at}.role"), "each message must have a role")),
                "developer" => "system",
                role => role,
            };
            let content = content(fields.get("content"), at)?;
            match messages.last_mut().filter(|last| role == "assistant" && is_only_reasoning(last)) {
                Some(thought) => thought.content = content,
                None => messages.push(Message { content, ..Message::new(role, "") }),
            }
        }
        "function_call" => {
            let call = ToolCall { id: text("call_id")?, name: text("name")?, arguments: text("arguments")? };
            match messages.last_mut().filter(|last| last.role == "assistant") {
                Some(last) => last.tool_calls.push(call),
                None => messages.push(Message::calls(vec![call])),
            }
        }
        "function_call_output" => {
            let output = content(fields.get("output"), at)?;
            messages.push(Message::tool_result(text("call_id")?, output.text().into_owned()));
        }
        "reasoning" => {
            let parts = fields.get("content").or(fields.get("summary")).and_then(Json::as_array);
            let texts = parts.into_iter().flatten().filter_map(|part| part.get("text")?.as_str());
            let reasoning = texts.collect::<Vec<_>>().join("\n");
            let content = Content::Nothing;
            messages.push(Message { content, ..Message::calls(Vec::new()) }.with_reasoning(reasoning));
        }
        // Items of tools that only OpenAI has.
        _ => {}
    }
    Ok(())
}

/// The tools in the form of chats. Tools that only OpenAI has are left out.
fn tools(fields: Fields<'_>) -> Result<(Vec<Json>, CallRules), ApiError> {
    let tools =
        fields.list(bounds::TOOLS)?.unwrap_or_default().iter().filter(|tool| tool["type"] == "function");
    let tools: Vec<Json> = tools
        .map(|tool| {
            let part = |key: &str| tool.get(key).cloned().unwrap_or_default();
            let keys = ["name", "description", "parameters", "strict"];
            let function: Map<String, Json> =
                keys.into_iter().map(|key| (key.to_owned(), part(key))).collect();
            json!({ "type": "function", "function": function })
        })
        .collect();
    if tools.iter().any(|tool| tool["function"]["name"].as_str().is_none_or(str::is_empty)) {
        return Err(ApiError::field("tools", "each function must have a `name`"));
    }
    let one_call = fields.flag("parallel_tool_calls")? == Some(false);
    let name_of: fn(&Json) -> Option<&str> = |tool| match tool["type"] == "function" {
        true => tool.get("name")?.as_str(),
        false => None,
    };
    choose(fields.get("tool_choice"), name_of, tools, one_call)
}

/// Answers a request.
pub(crate) async fn answer(front: Arc<Front>, ready: Arc<Ready>, asked: Asked) -> Result<Response, ApiError> {
    let Asked { generation, form, model, streams, repeated } = asked;
    let ticket = front.submit(&ready, generation)?;
    let answers = Answers::chat(ticket, 1, &form);
    let writer = ResponseStream::new(front, model, repeated);
    stream::response_or_whole(answers, writer, streams, ResponseStream::response).await
}

/// `/v1/responses/input_tokens`.
pub(crate) fn count(ready: &Ready, json: &Json) -> Result<Json, ApiError> {
    let tokens = conversation(Fields::of(json)?)?.tokens(ready)?.len();
    Ok(json!({ "object": "response.input_tokens", "input_tokens": tokens }))
}

/// Events of a response, and the response that they make.
struct ResponseStream {
    front: Arc<Front>,
    id: String,
    model: String,
    created: u64,
    repeated: Map<String, Json>,
    /// The items so far; the last one may be open.
    items: Vec<Json>,
    open: bool,
    /// The open item is a call that is not complete.
    in_call: bool,
    finished: Option<Finished>,
    events: u64,
}

impl ResponseStream {
    fn new(front: Arc<Front>, model: String, repeated: Map<String, Json>) -> ResponseStream {
        let (id, created) = (front.id("resp_"), now());
        ResponseStream {
            front,
            id,
            model,
            created,
            repeated,
            items: Vec::new(),
            open: false,
            in_call: false,
            finished: None,
            events: 0,
        }
    }

    /// The response as it is now.
    fn response(&self) -> Json {
        let (status, details) = match &self.finished {
            None => ("in_progress", Json::Null),
            Some(Finished { finish: Finish::Length, .. }) => {
                ("incomplete", json!({ "reason": "max_output_tokens" }))
            }
            Some(_) => ("completed", Json::Null),
        };
        let usage = self.finished.as_ref().map(|finished| {
            let Totals { prompt, cached, generated, reasoning } = Totals::default().with(0, 1, finished);
            json!({
                "input_tokens": prompt,
                "input_tokens_details": { "cached_tokens": cached },
                "output_tokens": generated,
                "output_tokens_details": { "reasoning_tokens": reasoning },
                "total_tokens": prompt + generated,
            })
        });
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": details,
            "model": self.model,
            "output": self.items,
            "store": false,
            "usage": usage,
        });
        if let Some(object) = response.as_object_mut() {
            object.extend(self.repeated.clone());
        }
        response
    }

    fn event(&mut self, name: &str, mut event: Json, frames: &mut Frames) {
        event["type"] = name.into();
        event["sequence_number"] = self.events.into();
        self.events += 1;
        frames.named(name, &event);
    }

    /// Opens an item, unless one of that type is open.
    fn open(&mut self, item: Json, frames: &mut Frames) {
        if self.open && self.items.last().is_some_and(|last| last["type"] == item["type"]) {
            return;
        }
        self.close(frames);
        let index = self.items.len();
        self.event("response.output_item.added", json!({ "output_index": index, "item": item }), frames);
        self.items.push(item);
        self.open = true;
        if let Some(part) = self.part() {
            let event =
                json!({ "item_id": self.item_id(), "output_index": index, "content_index": 0, "part": part });
            self.event("response.content_part.added", event, frames);
            self.last()["content"] = json!([part]);
        }
    }

    /// The open item.
    fn last(&mut self) -> &mut Json {
        if self.items.is_empty() {
            self.items.push(Json::Null);
        }
        let last = self.items.len() - 1;
        &mut self.items[last]
    }

    fn item_id(&self) -> Json {
        self.items.last().map(|item| item["id"].clone()).unwrap_or_default()
    }

    /// The empty part of the open item.
    fn part(&self) -> Option<Json> {
        match self.items.last()?["type"].as_str()? {
            "message" => {
                Some(json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] }))
            }
            "reasoning" => Some(json!({ "type": "reasoning_text", "text": "" })),
            _ => None,
        }
    }

    /// Adds text to the open item.
    fn add(&mut self, name: &str, text: &str, frames: &mut Frames) {
        let index = self.items.len() - 1;
        if let Some(Json::String(known)) = self.last().pointer_mut("/content/0/text") {
            known.push_str(text);
        }
        let event =
            json!({ "item_id": self.item_id(), "output_index": index, "content_index": 0, "delta": text });
        self.event(name, event, frames);
    }

    fn begin_call(&mut self, id: &str, name: &str, frames: &mut Frames) {
        self.close(frames);
        let (id, call_id) = (self.front.id("fc_"), chat::call_id(&self.front, id));
        let item = json!({
            "id": id, "type": "function_call", "status": "in_progress",
            "call_id": call_id, "name": name, "arguments": "",
        });
        self.open(item, frames);
        self.in_call = true;
    }

    /// Adds to the arguments of the open call.
    fn add_arguments(&mut self, text: &str, frames: &mut Frames) {
        let mut delta = self.place();
        delta["delta"] = text.into();
        self.event("response.function_call_arguments.delta", delta, frames);
    }

    /// Where the open item is.
    fn place(&self) -> Json {
        json!({ "item_id": self.item_id(), "output_index": self.items.len() - 1 })
    }

    fn close(&mut self, frames: &mut Frames) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let index = self.items.len() - 1;
        self.last()["status"] = "completed".into();
        let item = self.items[index].clone();
        let part = item["content"][0].clone();
        let name = match item["type"].as_str() {
            Some("message") => Some("response.output_text.done"),
            Some("reasoning") => Some("response.reasoning_text.done"),
            _ => None,
        };
        if let Some(name) = name {
            let place = json!({ "item_id": item["id"], "output_index": index, "content_index": 0 });
            let mut done = place.clone();
            done["text"] = part["text"].clone();
            self.event(name, done, frames);
            let mut done = place;
            done["part"] = part;
            self.event("response.content_part.done", done, frames);
        }
        self.event("response.output_item.done", json!({ "output_index": index, "item": item }), frames);
    }
}

impl Protocol for ResponseStream {
    fn begin(&mut self, frames: &mut Frames) {
        let response = self.response();
        self.event("response.created", json!({ "response": response }), frames);
        self.event("response.in_progress", json!({ "response": response }), frames);
    }

    fn piece(&mut self, _: usize, piece: Piece, frames: &mut Frames) {
        match piece {
            Piece::Admitted { .. } => {}
            Piece::Text { text, .. } => {
                let id = self.front.id("msg_");
                let item = json!({
                    "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [],
                });
                self.open(item, frames);
                self.add("response.output_text.delta", &text, frames);
            }
            Piece::Reasoning(text) => {
                let id = self.front.id("rs_");
                let item = json!({
                    "id": id, "type": "reasoning", "status": "in_progress", "summary": [], "content": [],
                });
                self.open(item, frames);
                self.add("response.reasoning_text.delta", &text, frames);
            }
            Piece::CallBegins { id, name } => self.begin_call(&id, &name, frames),
            Piece::CallArguments(text) => self.add_arguments(&text, frames),
            Piece::Call(call) => {
                if !std::mem::take(&mut self.in_call) {
                    self.begin_call(&call.id, &call.name, frames);
                    self.add_arguments(&call.arguments, frames);
                    self.in_call = false;
                }
                let mut done = self.place();
                done["arguments"] = call.arguments.as_str().into();
                self.last()["arguments"] = call.arguments.into();
                self.event("response.function_call_arguments.done", done, frames);
                self.close(frames);
            }
            Piece::End(finished) => {
                self.close(frames);
                self.finished = Some(finished);
            }
        }
    }

    fn finish(&mut self, frames: &mut Frames) {
        let response = self.response();
        let name = match response["status"].as_str() {
            Some("incomplete") => "response.incomplete",
            _ => "response.completed",
        };
        self.event(name, json!({ "response": response }), frames);
    }

    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        let mut event = error.json();
        event["code"] = error.code.into();
        event["message"] = error.message.as_str().into();
        self.event("error", event, frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_thought_belongs_to_what_was_said_or_called() {
        let thought = |text: &str| json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": text }] });
        let said = |text: &str| json!({ "role": "assistant", "content": text });
        let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
        let output = json!({ "type": "function_call_output", "call_id": "c", "output": "1" });
        let user = json!({ "role": "user", "content": "q" });
        let input = [user, thought("one"), said("a"), thought("two"), call, output, said("b")];
        let body = json!({ "input": input });
        let messages = conversation(Fields::of(&body).unwrap()).unwrap().messages;
        let seen: Vec<_> = messages
            .iter()
            .map(|message| {
                let reasoning = message.reasoning.as_deref().unwrap_or_default();
                (
                    message.role.as_str(),
                    message.content.text().into_owned(),
                    reasoning,
                    message.tool_calls.len(),
                )
            })
            .collect();
        let expected = [
            ("user", "q", "", 0),
            ("assistant", "a", "one", 0),
            ("assistant", "", "two", 1),
            ("tool", "1", "", 0),
            ("assistant", "b", "", 0),
        ];
        let expected =
            expected.map(|(role, text, reasoning, calls)| (role, text.to_owned(), reasoning, calls));
        assert_eq!(seen, expected);
    }
}
