//! `/v1/completions`.

use std::sync::Arc;

use axum::response::Response;
use orlop_llm::{AnswerFormat, GrammarMatcher, Special};
use serde_json::{Value as Json, json};

use super::answer::{Answers, Collected, Finish, Piece, Totals};
use super::chat::{Head, model_name};
use super::fields::{Fields, within};
use super::stream::{Frames, Protocol};
use super::structure::Structure;
use super::{report, sampling, stream};
use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::generation::Generation;
use crate::front::{Front, Ready};
use crate::net::guard::Caller;

/// A completion request that was read.
pub(crate) struct Completion {
    generation: Generation,
    /// The texts of the prompts, if they come before the answers.
    echoes: Vec<String>,
    streams: bool,
    includes_usage: bool,
    scores: bool,
    model: String,
}

/// Reads a completion request.
pub(crate) fn read(
    json: &Json,
    front: &Front,
    ready: &Ready,
    caller: Caller,
) -> Result<Completion, ApiError> {
    let fields = Fields::of(json)?;
    let model = model_name(fields, &ready.name)?;
    let mut generation = sampling::generation(fields, front, ready, caller)?;
    let top = fields.count(bounds::LOGPROBS)?;
    generation.top = top;
    if fields.get("suffix").is_some_and(|suffix| suffix != "") {
        return Err(ApiError::unsupported("suffix", "`suffix` is"));
    }
    if fields.count(bounds::BEST_OF)?.is_some_and(|best| best > generation.answers) {
        return Err(ApiError::unsupported("best_of", "`best_of` above `n` is"));
    }
    let echo = fields.flag("echo")?.unwrap_or(false);
    if echo && top.is_some() {
        return Err(ApiError::unsupported("echo", "`echo` with `logprobs` is"));
    }
    generation.grammar = grammar(fields, ready)?;
    generation.prompts = prompts(fields, ready)?;
    let echoes = generation.prompts.iter().filter(|_| echo).map(|prompt| ready.tokenizer.decode_all(prompt));
    let options = fields.object("stream_options")?;
    let includes_usage = options.and_then(|options| options.get("include_usage")?.as_bool());
    Ok(Completion {
        echoes: echoes.collect(),
        streams: fields.flag("stream")?.unwrap_or(false),
        includes_usage: includes_usage.unwrap_or(false),
        scores: top.is_some(),
        model,
        generation,
    })
}

/// What the answers have to match.
pub(crate) fn grammar(fields: Fields<'_>, ready: &Ready) -> Result<Option<GrammarMatcher>, ApiError> {
    Structure::of(fields)?.map(|wanted| wanted.compile(ready, &AnswerFormat::default())).transpose()
}

/// The prompts of a request: a text, tokens, or a list of either.
pub(crate) fn prompts(fields: Fields<'_>, ready: &Ready) -> Result<Vec<Vec<u32>>, ApiError> {
    let field = bounds::PROMPTS.field;
    let wrong = || ApiError::field(field, "`prompt` must be a text, a list of tokens, or a list of these");
    let tokens = |list: &[Json]| {
        let ids = list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
        ids.collect::<Option<Vec<u32>>>().filter(|ids| !ids.is_empty())
    };
    let one = |json: &Json| match json {
        Json::String(text) => Ok(ready.tokenizer.prompt(text, Special::Parse)),
        Json::Array(list) => tokens(list).ok_or_else(wrong),
        _ => Err(wrong()),
    };
    match fields.get(field).ok_or_else(wrong)? {
        Json::Array(list) if list.first().is_some_and(|first| !first.is_number()) => {
            within(list.len(), bounds::PROMPTS)?;
            list.iter().map(one).collect()
        }
        prompt => Ok(vec![one(prompt)?]),
    }
}

/// Answers a completion request.
pub(crate) async fn answer(
    front: Arc<Front>,
    ready: Arc<Ready>,
    asked: Completion,
) -> Result<Response, ApiError> {
    let Completion { generation, echoes, streams, includes_usage, scores, model } = asked;
    let (choices, each) = (generation.choices(), generation.answers);
    let ticket = front.submit(&ready, generation)?;
    let answers = Answers::text(ticket, choices);
    let head = Head::new(&front, "cmpl-", model);
    let writer = Writer { ready, head, each, scores, echoes };
    if streams {
        let stream =
            TextChunks { writer, offsets: vec![0; choices], includes_usage, totals: Totals::default() };
        return Ok(stream::response(answers, stream));
    }
    let answers = answers.collect().await?;
    let choices = answers.iter().enumerate().map(|(index, answer)| writer.choice(index, answer));
    let mut json = writer.head("text_completion");
    json["choices"] = choices.collect();
    json["usage"] = report::usage(Totals::of(&answers, each));
    if let Some(finished) = answers.first().and_then(|answer| answer.finished.as_ref()) {
        json["timings"] = report::timings(finished);
    }
    Ok(report::response(&json))
}

/// Writes completions.
struct Writer {
    ready: Arc<Ready>,
    head: Head,
    /// Answers to each prompt.
    each: usize,
    scores: bool,
    echoes: Vec<String>,
}

impl Writer {
    fn head(&self, object: &str) -> Json {
        let Head { id, created, model } = &self.head;
        json!({ "id": id, "object": object, "created": created, "model": model })
    }

    fn echo(&self, choice: usize) -> &str {
        self.echoes.get(choice / self.each.max(1)).map_or("", String::as_str)
    }

    fn choice(&self, index: usize, answer: &Collected) -> Json {
        let scores = self.scores.then(|| report::text_scores(&self.ready.tokenizer, &answer.scores, &mut 0));
        json!({
            "index": index,
            "text": format!("{}{}", self.echo(index), answer.text),
            "logprobs": scores,
            "finish_reason": answer.finished.as_ref().map(|finished| finish_reason(finished.finish)),
        })
    }
}

/// Completions know no tools.
fn finish_reason(finish: Finish) -> &'static str {
    report::finish_reason(if finish == Finish::Calls { Finish::Stop } else { finish })
}

/// Chunks of completions.
struct TextChunks {
    writer: Writer,
    /// Characters of each answer so far.
    offsets: Vec<usize>,
    includes_usage: bool,
    totals: Totals,
}

impl TextChunks {
    fn chunk(&self, choice: usize, text: &str, finish: Option<&str>) -> Json {
        let mut chunk = self.writer.head("text_completion");
        chunk["choices"] =
            json!([{ "index": choice, "text": text, "logprobs": null, "finish_reason": finish }]);
        chunk
    }
}

impl Protocol for TextChunks {
    fn begin(&mut self, frames: &mut Frames) {
        for choice in 0..self.offsets.len() {
            let echo = self.writer.echo(choice);
            if !echo.is_empty() {
                frames.data(&self.chunk(choice, echo, None));
            }
        }
    }

    fn piece(&mut self, choice: usize, piece: Piece, frames: &mut Frames) {
        match piece {
            Piece::Text { text, scores } => {
                let mut chunk = self.chunk(choice, &text, None);
                if self.writer.scores {
                    let offset = &mut self.offsets[choice];
                    let scores = report::text_scores(&self.writer.ready.tokenizer, &scores, offset);
                    chunk["choices"][0]["logprobs"] = scores;
                }
                frames.data(&chunk);
            }
            Piece::End(finished) => {
                self.totals = self.totals.with(choice, self.writer.each, &finished);
                let mut chunk = self.chunk(choice, "", Some(finish_reason(finished.finish)));
                chunk["timings"] = report::timings(&finished);
                frames.data(&chunk);
            }
            // Completions are read as text.
            _ => {}
        }
    }

    fn finish(&mut self, frames: &mut Frames) {
        if self.includes_usage {
            let mut chunk = self.writer.head("text_completion");
            chunk["choices"] = json!([]);
            chunk["usage"] = report::usage(self.totals);
            frames.data(&chunk);
        }
        frames.done();
    }
}
