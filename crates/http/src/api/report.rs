//! What all of OpenAI's older APIs say alike: tokens, times, log probabilities, and why an answer ended.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use orlop_llm::Tokenizer;
use serde_json::{Map, Value as Json, json};

use super::answer::{Finish, Finished, Totals};
use crate::engine::ring::Score;

/// A response of JSON.
pub(crate) fn response(json: &Json) -> Response {
    let mut response = Response::new(Body::from(json.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Tokens of a request.
pub(crate) fn usage(totals: Totals) -> Json {
    let Totals { prompt, cached, generated, reasoning } = totals;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": { "cached_tokens": cached },
        "completion_tokens_details": { "reasoning_tokens": reasoning },
    })
}

/// Times of an answer, under llama.cpp's names.
pub(crate) fn timings(finished: &Finished) -> Json {
    let Finished { usage, times, .. } = finished;
    let (prompt, generation) = (times.prompt.as_secs_f64(), times.generation.as_secs_f64());
    let each = |seconds: f64, count: usize| if count == 0 { 0.0 } else { 1e3 * seconds / count as f64 };
    let speed = |seconds: f64, count: usize| if seconds == 0.0 { 0.0 } else { count as f64 / seconds };
    let (fed, after) = (usage.prompt - usage.cached, usage.generated.saturating_sub(1));
    let mut timings = json!({
        "queue_ms": 1e3 * times.queued.as_secs_f64(),
        "cache_n": usage.cached,
        "prompt_n": fed,
        "prompt_ms": 1e3 * prompt,
        "prompt_per_token_ms": each(prompt, fed),
        "prompt_per_second": speed(prompt, fed),
        "predicted_n": usage.generated,
        "predicted_ms": 1e3 * generation,
        "predicted_per_token_ms": each(generation, after),
        "predicted_per_second": speed(generation, after),
    });
    if usage.drafted > 0 {
        timings["draft_n"] = usage.drafted.into();
        timings["draft_n_accepted"] = usage.accepted.into();
    }
    timings
}

/// Why an answer ended.
pub(crate) fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Calls => "tool_calls",
    }
}

/// A number of JSON: minus infinity is none.
fn log_probability(value: f32) -> f64 {
    f64::from(value.max(-9999.0))
}

/// The text of a token; U+FFFD where it is part of a character.
fn token_text(tokenizer: &Tokenizer, token: u32) -> String {
    String::from_utf8_lossy(tokenizer.decode_special(token)).into_owned()
}

fn scored(tokenizer: &Tokenizer, token: u32, value: f32) -> Json {
    json!({
        "id": token,
        "token": token_text(tokenizer, token),
        "logprob": log_probability(value),
        "bytes": tokenizer.decode_special(token),
    })
}

/// Log probabilities in the form of chats.
pub(crate) fn chat_scores(tokenizer: &Tokenizer, scores: &[Score]) -> Json {
    let content = scores.iter().map(|score| {
        let top = score.top.iter().map(|(token, value)| scored(tokenizer, *token, *value));
        let mut entry = scored(tokenizer, score.token, score.log_probability);
        entry["top_logprobs"] = top.collect();
        entry
    });
    json!({ "content": content.collect::<Vec<Json>>(), "refusal": null })
}

/// Log probabilities in the form of completions; `offset` is the number of characters before them, and is moved on.
pub(crate) fn text_scores(tokenizer: &Tokenizer, scores: &[Score], offset: &mut usize) -> Json {
    let text = |token: &u32| token_text(tokenizer, *token);
    let mut offsets = Vec::with_capacity(scores.len());
    for score in scores {
        offsets.push(*offset);
        *offset += text(&score.token).chars().count();
    }
    let top = |score: &Score| {
        let pairs =
            score.top.iter().rev().map(|(token, value)| (text(token), log_probability(*value).into()));
        pairs.collect::<Map<String, Json>>()
    };
    json!({
        "tokens": scores.iter().map(|score| text(&score.token)).collect::<Vec<_>>(),
        "token_logprobs": scores.iter().map(|score| log_probability(score.log_probability)).collect::<Vec<_>>(),
        "top_logprobs": scores.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
