//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Value as Json, json};

use super::answer::{Answers, ChatForm, Collected, Piece, Totals};
use super::conversation::Conversation;
use super::fields::Fields;
use super::stream::{Frames, Protocol};
use super::structure::Structure;
use super::{report, sampling, stream};
use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::generation::Generation;
use crate::front::{Front, Ready, now};
use crate::net::guard::Caller;

/// A chat request that was read.
pub(crate) struct Chat {
    generation: Generation,
    form: ChatForm,
    streams: bool,
    includes_usage: bool,
    scores: bool,
    model: String,
}

/// What all parts of a response say of it.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

impl Head {
    pub(crate) fn new(front: &Front, prefix: &str, model: String) -> Head {
        Head { id: front.id(prefix), created: now(), model }
    }

    fn json(&self, object: &str) -> Json {
        json!({ "id": self.id, "object": object, "created": self.created, "model": self.model })
    }
}

/// Reads a chat request.
pub(crate) fn read(json: &Json, front: &Front, ready: &Ready, caller: Caller) -> Result<Chat, ApiError> {
    let fields = Fields::of(json)?;
    let model = model_name(fields, &ready.name)?;
    let mut generation = sampling::generation(fields, front, ready, caller)?;
    let scores = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.count(bounds::TOP_LOGPROBS)?;
    if top.is_some() && !scores {
        return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs` to be true"));
    }
    generation.top = scores.then(|| top.unwrap_or(0));
    let wanted = Structure::of(fields)?;
    let form = Conversation::of(fields)?.prepare(ready, &mut generation, wanted.as_ref())?;
    let options = fields.object("stream_options")?;
    let includes_usage = options.and_then(|options| options.get("include_usage")?.as_bool());
    Ok(Chat {
        generation,
        form,
        streams: fields.flag("stream")?.unwrap_or(false),
        includes_usage: includes_usage.unwrap_or(false),
        scores,
        model,
    })
}

/// The model's name in answers: the one that the request gives it.
pub(crate) fn model_name(fields: Fields<'_>, name: &str) -> Result<String, ApiError> {
    let name = fields.text("model")?.unwrap_or(name);
    super::fields::within(name.len(), bounds::MODEL_BYTES)?;
    Ok(name.to_owned())
}

/// Answers a chat request.
pub(crate) async fn answer(front: Arc<Front>, ready: Arc<Ready>, chat: Chat) -> Result<Response, ApiError> {
    let Chat { generation, form, streams, includes_usage, scores, model } = chat;
    let choices = generation.choices();
    let ticket = front.submit(&ready, generation)?;
    let answers = Answers::chat(ticket, choices, &form);
    let head = Head::new(&front, "chatcmpl-", model);
    if streams {
        let calls = vec![Calls::default(); choices];
        let stream =
            ChatStream { front, ready, head, calls, includes_usage, scores, totals: Totals::default() };
        return Ok(stream::response(answers, stream));
    }
    let answers = answers.collect().await?;
    let choices =
        answers.iter().enumerate().map(|(index, answer)| choice(&front, &ready, index, answer, scores));
    let mut json = head.json("chat.completion");
    json["choices"] = choices.collect();
    json["usage"] = report::usage(Totals::of(&answers, answers.len()));
    if let Some(finished) = answers.first().and_then(|answer| answer.finished.as_ref()) {
        json["timings"] = report::timings(finished);
    }
    Ok(report::response(&json))
}

fn choice(front: &Front, ready: &Ready, index: usize, answer: &Collected, scores: bool) -> Json {
    let Collected { text, reasoning, calls, finished, .. } = answer;
    let content = if text.is_empty() && !calls.is_empty() { Json::Null } else { text.as_str().into() };
    let mut message = json!({ "role": "assistant", "content": content });
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.as_str().into();
    }
    if !calls.is_empty() {
        let calls = calls.iter().map(|call| {
            json!({
                "id": call_id(front, &call.id),
                "type": "function",
                "function": { "name": call.name, "arguments": call.arguments },
            })
        });
        message["tool_calls"] = calls.collect();
    }
    let scores = scores.then(|| report::chat_scores(&ready.tokenizer, &answer.scores));
    json!({
        "index": index,
        "message": message,
        "logprobs": scores,
        "finish_reason": finished.as_ref().map(|finished| report::finish_reason(finished.finish)),
    })
}

/// The name of a call: the model's own, or a new one.
pub(crate) fn call_id(front: &Front, id: &str) -> String {
    if id.is_empty() { front.id("call_") } else { id.to_owned() }
}

/// Calls of an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    begun: usize,
    complete: usize,
}

/// Chunks of a chat.
struct ChatStream {
    front: Arc<Front>,
    ready: Arc<Ready>,
    head: Head,
    /// Calls of each answer so far.
    calls: Vec<Calls>,
    includes_usage: bool,
    scores: bool,
    totals: Totals,
}

impl ChatStream {
    fn chunk(&self, choice: usize, delta: &Json, finish: Option<&str>) -> Json {
        let mut chunk = self.head.json("chat.completion.chunk");
        chunk["choices"] =
            json!([{ "index": choice, "delta": delta, "logprobs": null, "finish_reason": finish }]);
        chunk
    }
}

impl ChatStream {
    fn begin_call(&mut self, choice: usize, id: &str, name: &str, frames: &mut Frames) {
        let index = self.calls[choice].begun;
        self.calls[choice].begun += 1;
        let delta = json!({ "tool_calls": [{
            "index": index,
            "id": call_id(&self.front, id),
            "type": "function",
            "function": { "name": name, "arguments": "" },
        }] });
        frames.data(&self.chunk(choice, &delta, None));
    }

    /// Adds to the arguments of the last call.
    fn add_arguments(&mut self, choice: usize, text: &str, frames: &mut Frames) {
        let index = self.calls[choice].begun.saturating_sub(1);
        let delta = json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] });
        frames.data(&self.chunk(choice, &delta, None));
    }
}

impl Protocol for ChatStream {
    fn begin(&mut self, frames: &mut Frames) {
        for choice in 0..self.calls.len() {
            frames.data(&self.chunk(choice, &json!({ "role": "assistant", "content": null }), None));
        }
    }

    fn piece(&mut self, choice: usize, piece: Piece, frames: &mut Frames) {
        match piece {
            Piece::Admitted { .. } => {}
            Piece::Text { text, scores } => {
                let mut chunk = self.chunk(choice, &json!({ "content": text }), None);
                if self.scores {
                    chunk["choices"][0]["logprobs"] = report::chat_scores(&self.ready.tokenizer, &scores);
                }
                frames.data(&chunk);
            }
            Piece::Reasoning(text) => {
                frames.data(&self.chunk(choice, &json!({ "reasoning_content": text }), None))
            }
            Piece::CallBegins { id, name } => self.begin_call(choice, &id, &name, frames),
            Piece::CallArguments(text) => self.add_arguments(choice, &text, frames),
            Piece::Call(call) => {
                if self.calls[choice].begun == self.calls[choice].complete {
                    self.begin_call(choice, &call.id, &call.name, frames);
                    self.add_arguments(choice, &call.arguments, frames);
                }
                self.calls[choice].complete += 1;
            }
            Piece::End(finished) => {
                self.totals = self.totals.with(choice, self.calls.len(), &finished);
                let reason = report::finish_reason(finished.finish);
                let mut chunk = self.chunk(choice, &json!({}), Some(reason));
                chunk["timings"] = report::timings(&finished);
                frames.data(&chunk);
            }
        }
    }

    fn finish(&mut self, frames: &mut Frames) {
        if self.includes_usage {
            let mut chunk = self.head.json("chat.completion.chunk");
            chunk["choices"] = json!([]);
            chunk["usage"] = report::usage(self.totals);
            frames.data(&chunk);
        }
        frames.done();
    }
}
