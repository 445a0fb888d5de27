//! `/v1/embeddings` and `/v1/rerank`, of models that make embeddings or scores.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use orlop_llm::{Error, Special};
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;

use super::fields::{Fields, within};
use super::{chat, report};
use crate::api_error::ApiError;
use crate::bounds;
use crate::engine::embed_loop::{EmbedAsk, EmbedTexts};
use crate::front::EmbedderReady;

/// How the numbers of an embedding are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Numbers,
    /// F32, little-endian, in Base64.
    Base64,
}

/// A request for embeddings that was read.
pub(crate) struct AskedTexts {
    texts: Vec<Vec<u32>>,
    model: String,
    encoding: Encoding,
}

/// Reads a request for embeddings.
pub(crate) fn read_texts(json: &Json, ready: &EmbedderReady) -> Result<AskedTexts, ApiError> {
    let fields = Fields::of(json)?;
    let model = chat::model_name(fields, &ready.name)?;
    let encoding = match fields.text("encoding_format")? {
        None | Some("float") => Encoding::Numbers,
        Some("base64") => Encoding::Base64,
        Some(_) => {
            return Err(ApiError::field("encoding_format", "`encoding_format` must be `float` or `base64`"));
        }
    };
    let dimensions = fields.count(bounds::DIMENSIONS)?.map_or(ready.dimensions, |some| some as u64);
    if dimensions != ready.dimensions {
        let what = format!("embeddings of other than {} dimensions are", ready.dimensions);
        return Err(ApiError::unsupported("dimensions", &what));
    }
    Ok(AskedTexts { texts: inputs(fields, ready)?, model, encoding })
}

/// Answers a request for embeddings.
pub(crate) async fn embed(ready: Arc<EmbedderReady>, asked: AskedTexts) -> Result<Response, ApiError> {
    let AskedTexts { texts, model, encoding } = asked;
    let tokens: usize = texts.iter().map(Vec::len).sum();
    let rows = ask(&ready, EmbedTexts::Tokens(texts)).await?;
    let data = rows.iter().enumerate().map(|(index, row)| {
        let embedding = match encoding {
            Encoding::Numbers => json!(row),
            Encoding::Base64 => {
                json!(base64(&row.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>()))
            }
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    Ok(report::response(&json!({
        "object": "list",
        "data": data.collect::<Vec<Json>>(),
        "model": model,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}

/// The texts of a request: one, its tokens, or a list of either.
fn inputs(fields: Fields<'_>, ready: &EmbedderReady) -> Result<Vec<Vec<u32>>, ApiError> {
    let field = bounds::INPUTS.field;
    let wrong = || ApiError::field(field, "`input` must be a text, a list of tokens, or a list of these");
    let one = |json: &Json| match json {
        Json::String(text) => Ok(ready.tokenizer.prompt(text, Special::Parse)),
        Json::Array(ids) => {
            let ids = ids.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
            ids.collect::<Option<Vec<u32>>>().ok_or_else(wrong)
        }
        _ => Err(wrong()),
    };
    match fields.get(field).ok_or_else(wrong)? {
        Json::Array(list) if list.first().is_some_and(|first| !first.is_number()) => {
            within(list.len(), bounds::INPUTS)?;
            list.iter().map(one).collect()
        }
        Json::Array(list) if list.is_empty() => Err(wrong()),
        input => Ok(vec![one(input)?]),
    }
}

/// A request for the documents that fit a query best, after it was read.
pub(crate) struct AskedDocuments {
    query: String,
    documents: Vec<String>,
    model: String,
    /// How many of them are wanted.
    count: usize,
    /// Whether the documents come back.
    returned: bool,
    tokens: usize,
}

/// Reads a request for the documents that fit a query best.
pub(crate) fn read_documents(json: &Json, ready: &EmbedderReady) -> Result<AskedDocuments, ApiError> {
    let fields = Fields::of(json)?;
    let model = chat::model_name(fields, &ready.name)?;
    let query = fields.text("query")?.ok_or_else(|| ApiError::field("query", "`query` is required"))?;
    let documents = documents(fields)?;
    let count = fields.count(bounds::TOP_N)?.unwrap_or(documents.len());
    let returned = fields.flag("return_documents")?.unwrap_or(false);
    let tokens = |text: &str| ready.tokenizer.encode(text, Special::Parse).len();
    let each = tokens(query);
    let tokens: usize = documents.iter().map(|document| each + tokens(document)).sum();
    Ok(AskedDocuments { query: query.to_owned(), documents, model, count, returned, tokens })
}

/// Answers a request for the documents that fit a query best.
pub(crate) async fn rerank(ready: Arc<EmbedderReady>, asked: AskedDocuments) -> Result<Response, ApiError> {
    let AskedDocuments { query, documents, model, count, returned, tokens } = asked;
    let rows = ask(&ready, EmbedTexts::Pairs { query, documents: documents.clone() }).await?;
    let scores = rows.iter().map(|row| row.first().copied().unwrap_or(0.0));
    let mut ranked: Vec<(usize, f32)> = scores.enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let results = ranked.into_iter().take(count).map(|(index, score)| {
        let mut result = json!({ "index": index, "relevance_score": score });
        if returned {
            result["document"] = json!({ "text": documents[index] });
        }
        result
    });
    Ok(report::response(&json!({
        "object": "list",
        "model": model,
        "results": results.collect::<Vec<Json>>(),
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}

/// The documents: texts, or objects with a `text`.
fn documents(fields: Fields<'_>) -> Result<Vec<String>, ApiError> {
    let field = bounds::DOCUMENTS.field;
    let wrong = || ApiError::field(field, "`documents` must be a list of texts");
    let list = fields.list(bounds::DOCUMENTS)?.filter(|list| !list.is_empty()).ok_or_else(wrong)?;
    let text =
        |document: &Json| document.as_str().or_else(|| document.get("text")?.as_str()).map(str::to_owned);
    list.iter().map(text).collect::<Option<Vec<String>>>().ok_or_else(wrong)
}

/// Has the engine's thread answer.
async fn ask(ready: &EmbedderReady, texts: EmbedTexts) -> Result<Vec<Vec<f32>>, ApiError> {
    let (reply, answer) = oneshot::channel();
    ready.asks.try_send(EmbedAsk { texts, reply }).map_err(|_| {
        ApiError::busy(StatusCode::TOO_MANY_REQUESTS, "The queue is full: too many requests wait", 1)
    })?;
    match answer.await {
        Ok(Ok(rows)) => Ok(rows),
        Ok(Err(error)) => Err(refused(&error)),
        Err(_) => Err(ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down", 5)),
    }
}

fn refused(error: &Error) -> ApiError {
    match error {
        Error::TextTooLong { tokens, most, .. } => ApiError::too_long(*tokens, *most as usize),
        Error::OtherRows { .. } => ApiError::field("model", error.to_string()).with_code("unsupported"),
        Error::EmptyPrompt | Error::UnknownToken { .. } => ApiError::field("input", error.to_string()),
        error => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// [Base64](https://www.rfc-editor.org/rfc/rfc4648#section-4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let word =
            chunk.iter().fold(0u32, |word, byte| (word << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        (0..4).map(move |place| match place <= chunk.len() {
            true => char::from(DIGITS[(word >> (18 - 6 * place)) as usize & 63]),
            false => '=',
        })
    });
    digits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base64() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd, 0x3e]), "//79Pg==");
    }
}
