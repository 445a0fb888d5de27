//! Errors of requests, in OpenAI's form.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field that is wrong.
    pub(crate) param: Option<String>,
    /// A name for programs.
    pub(crate) code: Option<&'static str>,
    /// Seconds after which it may work.
    retry_after: Option<u64>,
    /// Tokens of a prompt that is too long, and of the context.
    lengths: Option<(usize, usize)>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
            lengths: None,
        }
    }

    /// A field has a value that it cannot have.
    pub(crate) fn field(field: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(field.into()), ..ApiError::new(StatusCode::BAD_REQUEST, message) }
    }

    /// The request is not what it should be.
    pub(crate) fn bad(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// Something that this server does not do.
    pub(crate) fn unsupported(field: impl Into<String>, what: &str) -> ApiError {
        let field = field.into();
        let message = format!("{what} not supported by this server");
        ApiError { code: Some("unsupported"), ..ApiError::field(field, message) }
    }

    /// A prompt that leaves no room. Clients look for both phrases.
    pub(crate) fn too_long(prompt: usize, context: usize) -> ApiError {
        let message = format!(
            "This model's maximum context length is {context} tokens, and the prompt has {prompt}: it exceeds the \
             available context size; shorten it"
        );
        ApiError {
            code: Some("context_length_exceeded"),
            lengths: Some((prompt, context)),
            ..ApiError::bad(message)
        }
    }

    /// It may work later.
    pub(crate) fn busy(status: StatusCode, message: impl Into<String>, seconds: u64) -> ApiError {
        ApiError { retry_after: Some(seconds), ..ApiError::new(status, message) }
    }

    #[must_use]
    pub(crate) fn with_param(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(param.into());
        self
    }

    #[must_use]
    pub(crate) fn with_code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    /// What kind of error it is, in OpenAI's words.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// The body. Clients of Anthropic's API look for `type` beside `error`.
    pub(crate) fn json(&self) -> Json {
        let mut error = json!({
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        });
        if let Some((prompt, context)) = self.lengths {
            error["n_prompt_tokens"] = prompt.into();
            error["n_ctx"] = context.into();
        }
        json!({ "type": "error", "error": error })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.json().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
