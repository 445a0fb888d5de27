//! The endpoints of llama.cpp's server: `/completion`, `/tokenize`, `/detokenize`, `/apply-template` and `/props`.

use std::sync::Arc;

use axum::response::Response;
use orlop_llm::Special;
use serde_json::{Value as Json, json};

use super::answer::{Answers, Finish, Finished, Piece};
use super::conversation::Conversation;
use super::fields::Fields;
use super::stream::{Frames, Protocol};
use super::{completions, report, sampling, stream};
use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::generation::Generation;
use crate::engine::ring::Score;
use crate::front::{Front, Ready};
use crate::net::guard::Caller;

/// A native completion request that was read.
pub(crate) struct AskedText {
    generation: Generation,
    streams: bool,
}

/// Reads a native completion request.
pub(crate) fn read(json: &Json, front: &Front, ready: &Ready, caller: Caller) -> Result<AskedText, ApiError> {
    let fields = Fields::of(json)?;
    let mut generation = sampling::generation(fields, front, ready, caller)?;
    generation.top = fields.count(bounds::N_PROBS)?.filter(|top| *top > 0);
    generation.grammar = completions::grammar(fields, ready)?;
    generation.prompts = completions::prompts(fields, ready)?;
    Ok(AskedText { generation, streams: fields.flag("stream")?.unwrap_or(false) })
}

/// Answers a native completion request.
pub(crate) async fn answer(
    front: Arc<Front>,
    ready: Arc<Ready>,
    asked: AskedText,
) -> Result<Response, ApiError> {
    let AskedText { generation, streams } = asked;
    let choices = generation.choices();
    let ticket = front.submit(&ready, generation)?;
    let answers = Answers::text(ticket, choices);
    let model = ready.name.clone();
    if streams {
        return Ok(stream::response(answers, NativeStream { ready, model }));
    }
    let answers = answers.collect().await?.into_iter().enumerate().filter_map(|(index, answer)| {
        let mut json = last(&model, index, answer.finished.as_ref()?);
        json["content"] = answer.text.into();
        json["completion_probabilities"] = probabilities(&ready, &answer.scores);
        Some(json)
    });
    let mut answers: Vec<Json> = answers.collect();
    let json = if answers.len() == 1 { answers.remove(0) } else { answers.into() };
    Ok(report::response(&json))
}

fn probabilities(ready: &Ready, scores: &[Score]) -> Json {
    report::chat_scores(&ready.tokenizer, scores)["content"].take()
}

/// The end of an answer.
fn last(model: &str, index: usize, finished: &Finished) -> Json {
    let stop = match (finished.finish, &finished.stopped_by) {
        (Finish::Length, _) => "limit",
        (_, Some(_)) => "word",
        (_, None) => "eos",
    };
    json!({
        "index": index,
        "content": "",
        "stop": true,
        "model": model,
        "tokens_predicted": finished.usage.generated,
        "tokens_evaluated": finished.usage.prompt,
        "tokens_cached": finished.usage.cached,
        "truncated": false,
        "stop_type": stop,
        "stopping_word": finished.stopped_by.as_deref().unwrap_or_default(),
        "timings": report::timings(finished),
    })
}

/// Events of a native completion.
struct NativeStream {
    ready: Arc<Ready>,
    model: String,
}

impl Protocol for NativeStream {
    fn begin(&mut self, _: &mut Frames) {}

    fn piece(&mut self, choice: usize, piece: Piece, frames: &mut Frames) {
        match piece {
            Piece::Text { text, scores } => {
                let mut event = json!({ "index": choice, "content": text, "stop": false });
                if !scores.is_empty() {
                    event["completion_probabilities"] = probabilities(&self.ready, &scores);
                }
                frames.data(&event);
            }
            Piece::End(finished) => frames.data(&last(&self.model, choice, &finished)),
            // Completions are read as text.
            _ => {}
        }
    }

    fn finish(&mut self, _: &mut Frames) {}
}

/// `/tokenize`.
pub(crate) fn tokenize(ready: &Ready, json: &Json) -> Result<Json, ApiError> {
    let fields = Fields::of(json)?;
    let text = fields.text("content")?.unwrap_or_default();
    let special =
        if fields.flag("parse_special")?.unwrap_or(true) { Special::Parse } else { Special::AsText };
    let tokens = match fields.flag("add_special")?.unwrap_or(false) {
        true => ready.tokenizer.prompt(text, special),
        false => ready.tokenizer.encode(text, special),
    };
    if !fields.flag("with_pieces")?.unwrap_or(false) {
        return Ok(json!({ "tokens": tokens }));
    }
    let pieces = tokens.iter().map(|token| {
        let bytes = ready.tokenizer.decode_special(*token);
        let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text));
        json!({ "id": token, "piece": piece })
    });
    Ok(json!({ "tokens": pieces.collect::<Vec<Json>>() }))
}

/// `/detokenize`.
pub(crate) fn detokenize(ready: &Ready, json: &Json) -> Result<Json, ApiError> {
    let wrong = || ApiError::field("tokens", "`tokens` must be a list of token ids");
    let list = Fields::of(json)?.get("tokens").and_then(Json::as_array).ok_or_else(wrong)?;
    let ids = list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
    let ids = ids.collect::<Option<Vec<u32>>>().ok_or_else(wrong)?;
    Ok(json!({ "content": ready.tokenizer.decode_all(&ids) }))
}

/// `/apply-template`.
pub(crate) fn apply_template(ready: &Ready, json: &Json) -> Result<Json, ApiError> {
    Ok(json!({ "prompt": Conversation::of(Fields::of(json)?)?.text(ready)? }))
}

/// `/v1/chat/completions/input_tokens`.
pub(crate) fn count_chat(ready: &Ready, json: &Json) -> Result<Json, ApiError> {
    let tokens = Conversation::of(Fields::of(json)?)?.tokens(ready)?.len();
    Ok(json!({ "object": "response.input_tokens", "input_tokens": tokens }))
}

/// `/props`.
pub(crate) fn props(ready: &Ready) -> Json {
    let sampling = &ready.sampling;
    let template = ready.template.text();
    json!({
        "default_generation_settings": {
            "n_ctx": ready.limits.context,
            "params": {
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "min_p": sampling.min_p,
                "repeat_penalty": sampling.repeat_penalty,
                "presence_penalty": sampling.presence_penalty,
                "frequency_penalty": sampling.frequency_penalty,
            },
        },
        "total_slots": ready.limits.parallel,
        "model_alias": ready.name,
        "modalities": { "vision": false, "audio": false },
        "chat_template": template,
        // Where the template knows no tools, they are described in a message.
        "chat_template_caps": { "supports_tools": true, "supports_tool_calls": true },
        "build_info": concat!("orlop ", env!("CARGO_PKG_VERSION")),
    })
}
