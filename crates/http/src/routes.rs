//! Which path is answered by what.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde_json::Value as Json;

use crate::api::{chat, completions, embeddings, live, messages, models, native, openapi, report, responses};
use crate::api_error::ApiError;
use crate::front::{EmbedderReady, Front, Ready};
use crate::net::body;
use crate::net::guard::{Caller, guard};
use crate::options::ServerEvent;
use crate::page;

/// All routes.
pub(crate) fn router(front: &Arc<Front>) -> Router {
    let asks = Router::new()
        .route("/v1/chat/completions", asks(chat::read, chat::answer))
        .route("/chat/completions", asks(chat::read, chat::answer))
        .route("/v1/completions", asks(completions::read, completions::answer))
        .route("/v1/responses", asks(responses::read, responses::answer))
        .route("/responses", asks(responses::read, responses::answer))
        .route("/v1/messages", asks(messages::read, messages::answer))
        .route("/completion", asks(native::read, native::answer))
        .route("/completions", asks(native::read, native::answer));
    let embeds = Router::new()
        .route("/v1/embeddings", embeds(false, embeddings::read_texts, embeddings::embed))
        .route("/embeddings", embeds(false, embeddings::read_texts, embeddings::embed))
        .route("/v1/rerank", embeds(true, embeddings::read_documents, embeddings::rerank))
        .route("/rerank", embeds(true, embeddings::read_documents, embeddings::rerank));
    let texts = Router::new()
        .route("/v1/chat/completions/input_tokens", works(native::count_chat))
        .route("/v1/responses/input_tokens", works(responses::count))
        .route("/v1/messages/count_tokens", works(messages::count))
        .route("/tokenize", works(native::tokenize))
        .route("/detokenize", works(native::detokenize))
        .route("/apply-template", works(native::apply_template));
    let facts = Router::new()
        .route("/health", get(health))
        .route("/v1/health", get(health))
        .route("/metrics", get(metrics))
        .route("/props", get(props))
        .route("/orlop/live", get(watch))
        .route("/openapi.json", get(openapi_json))
        .route("/", get(page_file))
        .route("/page/{*path}", get(page_file))
        .route("/v1/models", get(list_models))
        .route("/models", get(list_models))
        .route("/v1/models/{*name}", get(one_model));
    asks.merge(embeds)
        .merge(texts)
        .merge(facts)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(front), guard))
        .layer(from_fn_with_state(Arc::clone(front), number))
        .with_state(Arc::clone(front))
}

/// A route that reads a body, and asks the model that it names.
fn asks<T, Read, Answer, R>(read: Read, answer: Answer) -> MethodRouter<Arc<Front>>
where
    T: Send + 'static,
    Read: Fn(&Json, &Front, &Ready, Caller) -> Result<T, ApiError> + Clone + Send + Sync + 'static,
    Answer: Fn(Arc<Front>, Arc<Ready>, T) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response, ApiError>> + Send,
{
    post(
        move |State(front): State<Arc<Front>>, Extension(caller): Extension<Caller>, request: Request| async move {
            let bytes = bytes(&front, request).await?;
            let worker = Arc::clone(&front);
            let work = move || {
                let json = body::json(&bytes)?;
                let ready = worker.ready(named(&json))?;
                let asked = read(&json, &worker, &ready, caller)?;
                Ok((ready, asked))
            };
            let (ready, asked) = front.work(work).await?;
            answer(front, ready, asked).await
        },
    )
}

/// A route that reads a body, and asks a model that makes embeddings or, where it `ranks`, scores.
fn embeds<T, Read, Answer, R>(ranks: bool, read: Read, answer: Answer) -> MethodRouter<Arc<Front>>
where
    T: Send + 'static,
    Read: Fn(&Json, &EmbedderReady) -> Result<T, ApiError> + Clone + Send + Sync + 'static,
    Answer: Fn(Arc<EmbedderReady>, T) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response, ApiError>> + Send,
{
    post(move |State(front): State<Arc<Front>>, request: Request| async move {
        let bytes = bytes(&front, request).await?;
        let worker = Arc::clone(&front);
        let work = move || {
            let json = body::json(&bytes)?;
            let ready = worker.embedder(named(&json), ranks)?;
            let asked = read(&json, &ready)?;
            Ok((ready, asked))
        };
        let (ready, asked) = front.work(work).await?;
        answer(ready, asked).await
    })
}

/// A route that reads a body and works on texts without the engine.
fn works(work: fn(&Ready, &Json) -> Result<Json, ApiError>) -> MethodRouter<Arc<Front>> {
    asks(
        move |json: &Json, _: &Front, ready: &Ready, _| work(ready, json),
        |_, _, answer| async move { Ok(report::response(&answer)) },
    )
}

/// The body of a request to a server that answers. It is read in any case: a client that is still sending it would not see
/// the answer.
async fn bytes(front: &Front, request: Request) -> Result<Vec<u8>, ApiError> {
    let (head, body): (_, Body) = request.into_parts();
    let bytes = body::read(&head.headers, body, front.options.bounds.body_time).await?;
    front.served().map(|_| bytes)
}

/// The model that a request names. A value of another kind is refused with the other fields.
fn named(json: &Json) -> Option<&str> {
    json.get("model").and_then(Json::as_str)
}

/// Numbers requests, and reports them.
async fn number(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    let (begin, request_number) = (Instant::now(), front.next_number());
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    response.headers_mut().insert("x-request-id", HeaderValue::from(request_number));
    front.metrics.responded(status);
    let time = begin.elapsed();
    front.log.see(|| ServerEvent::Response { request: request_number, method, path, status, time });
    response
}

async fn health(State(front): State<Arc<Front>>) -> Response {
    models::health(&front)
}

async fn metrics(State(front): State<Arc<Front>>) -> Response {
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], front.metrics.text()).into_response()
}

async fn props(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, ApiError> {
    let ready = front.ready(models::of_query(&uri)?.as_deref())?;
    Ok(report::response(&native::props(&ready)))
}

async fn watch(State(front): State<Arc<Front>>, uri: Uri) -> Result<Response, ApiError> {
    let ready = front.ready(models::of_query(&uri)?.as_deref())?;
    Ok(live::watch(&front, &ready))
}

async fn openapi_json() -> Response {
    report::response(&openapi::describe())
}

async fn page_file(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    match page::file(uri.path(), &headers) {
        Some(response) => response,
        None => unknown(method, uri).await,
    }
}

async fn list_models(State(front): State<Arc<Front>>) -> Response {
    models::list(&front)
}

async fn one_model(
    State(front): State<Arc<Front>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(|_| ApiError::bad("the model's name is not UTF-8"))?;
    models::one(&front, &name)
}

async fn unknown(method: Method, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(100).collect();
    ApiError::new(StatusCode::NOT_FOUND, format!("{method} {path} is not part of this server's API"))
        .into_response()
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let path: String = uri.path().chars().take(100).collect();
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} does not take {method}")).into_response()
}
