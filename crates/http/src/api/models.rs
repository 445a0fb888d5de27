//! `/v1/models` and `/health`.

use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};

use super::report;
use crate::api_error::ApiError;
use crate::front::{Front, Residence, Served, unknown_model};
use crate::model::ModelFacts;

/// Whether requests are answered.
pub(crate) fn health(front: &Front) -> Response {
    match front.served() {
        Ok(_) => report::response(&json!({ "status": "ok" })),
        Err(error) => error.into_response(),
    }
}

/// All models, those that are not loaded, too. Clients ask while the first one is loaded.
fn models(front: &Front) -> Vec<Json> {
    let Some(Served { texts, embedders }) = front.served.get() else { return Vec::new() };
    let texts = texts
        .iter()
        .map(|ready| model(front, &ready.name, &ready.facts, ready.limits.context, ready.residence.get()));
    let embedders = embedders.iter().map(|ready| {
        let model = model(front, &ready.name, &ready.facts, ready.longest, Residence::Loaded);
        with_task(model, if ready.ranks { "rerank" } else { "embed" })
    });
    texts.map(|model| with_task(model, "generate")).chain(embedders).collect()
}

/// With what it is for.
fn with_task(mut model: Json, task: &str) -> Json {
    model["task"] = task.into();
    model
}

fn model(front: &Front, name: &str, facts: &ModelFacts, context: usize, residence: Residence) -> Json {
    let status = match residence {
        Residence::Unloaded => "unloaded",
        Residence::Loading => "loading",
        Residence::Loaded => "loaded",
    };
    json!({
        "id": name,
        "object": "model",
        "created": front.started,
        "owned_by": "orlop",
        "status": { "value": status },
        "max_model_len": context,
        "meta": {
            "n_ctx": context,
            "n_ctx_train": facts.trained_context,
            "n_vocab": facts.vocabulary,
            "n_embd": facts.width,
            "n_params": facts.parameters,
            "size": facts.bytes,
        },
    })
}

/// The list of models.
pub(crate) fn list(front: &Front) -> Response {
    report::response(&json!({ "object": "list", "data": models(front) }))
}

/// One model.
pub(crate) fn one(front: &Front, name: &str) -> Result<Response, ApiError> {
    let models = models(front);
    match models.iter().find(|model| model["id"] == name) {
        Some(model) => Ok(report::response(model)),
        None => Err(unknown_model(name, models.iter().filter_map(|model| model["id"].as_str()))),
    }
}

/// The model that the query of an address names: `?model=NAME`.
pub(crate) fn of_query(uri: &Uri) -> Result<Option<String>, ApiError> {
    let pairs = uri.query().into_iter().flat_map(|query| query.split('&'));
    let name = pairs.filter_map(|pair| pair.strip_prefix("model=")).next();
    let wrong = || ApiError::field("model", "the model's name is not percent-encoded UTF-8");
    name.map(|name| decoded(name).ok_or_else(wrong)).transpose()
}

/// [Percent-encoded](https://www.rfc-editor.org/rfc/rfc3986#section-2.1) text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(rest.next())? << 4 | digit(rest.next())?) as u8,
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_model() {
        let name = |uri: &'static str| of_query(&Uri::from_static(uri)).ok();
        assert_eq!(name("/props"), Some(None));
        assert_eq!(name("/props?autoload=1&model=org%2Fa+b%C3%A9"), Some(Some("org/a bé".to_owned())));
        for wrong in ["/props?model=%", "/props?model=%2", "/props?model=%zz", "/props?model=%ff"] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
    }
}
