//! `/v1/models` and `/health`.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};

use super::report;
use crate::api_error::ApiError;
use crate::front::Front;

/// Whether requests are answered.
pub(crate) fn health(front: &Front) -> Response {
    match front.served() {
        Ok(_) => report::response(&json!({ "status": "ok" })),
        Err(error) => error.into_response(),
    }
}

/// The one model.
fn model(front: &Front) -> Json {
    let mut model = json!({
        "id": front.options.name,
        "object": "model",
        "created": front.started,
        "owned_by": "orlop",
    });
    if let Some(served) = front.served.get() {
        let (facts, context) = (served.facts(), served.context());
        model["max_model_len"] = context.into();
        model["meta"] = json!({
            "n_ctx": context,
            "n_ctx_train": facts.trained_context,
            "n_vocab": facts.vocabulary,
            "n_embd": facts.width,
            "n_params": facts.parameters,
            "size": facts.bytes,
        });
    }
    model
}

/// All models. Clients ask while the model is loaded.
pub(crate) fn list(front: &Front) -> Response {
    report::response(&json!({ "object": "list", "data": [model(front)] }))
}

/// One model.
pub(crate) fn one(front: &Front, name: &str) -> Result<Response, ApiError> {
    if name != front.options.name {
        let shown: String = name.chars().take(100).collect();
        let message = format!("The model `{shown}` does not exist; this server has `{}`", front.options.name);
        return Err(ApiError::new(StatusCode::NOT_FOUND, message).with_code("model_not_found"));
    }
    Ok(report::response(&model(front)))
}
