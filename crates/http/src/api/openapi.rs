//! `/openapi.json`: the endpoints, and the bounds of their numbers.

use serde_json::{Map, Value as Json, json};

use crate::bounds::{self, NumberBound};

/// An endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) path: &'static str,
    pub(crate) method: &'static str,
    summary: &'static str,
    /// Fields that it cannot do without.
    required: &'static [&'static str],
    numbers: &'static [&'static [NumberBound]],
}

const SAMPLING: [NumberBound; 15] = [
    bounds::TEMPERATURE,
    bounds::TOP_P,
    bounds::MIN_P,
    bounds::TOP_K,
    bounds::PRESENCE_PENALTY,
    bounds::FREQUENCY_PENALTY,
    bounds::REPEAT_PENALTY,
    bounds::REPETITION_PENALTY,
    bounds::REPEAT_LAST,
    bounds::SEED,
    bounds::ANSWERS,
    bounds::MAX_TOKENS,
    bounds::MAX_COMPLETION_TOKENS,
    bounds::MAX_OUTPUT_TOKENS,
    bounds::N_PREDICT,
];

const fn get(path: &'static str, summary: &'static str) -> Endpoint {
    Endpoint { path, method: "get", summary, required: &[], numbers: &[] }
}

const fn post(path: &'static str, summary: &'static str, required: &'static [&'static str]) -> Endpoint {
    Endpoint { path, method: "post", summary, required, numbers: &[] }
}

const fn asks(
    path: &'static str,
    summary: &'static str,
    required: &'static [&'static str],
    numbers: &'static [&'static [NumberBound]],
) -> Endpoint {
    Endpoint { path, method: "post", summary, required, numbers }
}

/// All endpoints.
pub(crate) const ENDPOINTS: [Endpoint; 21] = [
    asks("/v1/chat/completions", "Answer a chat", &["messages"], &[&SAMPLING, &[bounds::TOP_LOGPROBS]]),
    post("/v1/chat/completions/input_tokens", "Count the tokens of a chat", &["messages"]),
    asks(
        "/v1/completions",
        "Continue texts",
        &["prompt"],
        &[&SAMPLING, &[bounds::LOGPROBS, bounds::BEST_OF]],
    ),
    asks("/v1/responses", "Answer a chat with OpenAI's newer API", &["input"], &[&SAMPLING]),
    post("/v1/responses/input_tokens", "Count the tokens of a chat", &["input"]),
    asks("/v1/messages", "Answer a chat with Anthropic's API", &["messages", "max_tokens"], &[&SAMPLING]),
    post("/v1/messages/count_tokens", "Count the tokens of a chat", &["messages"]),
    asks(
        "/completion",
        "Continue a text with llama.cpp's API",
        &["prompt"],
        &[&SAMPLING, &[bounds::N_PROBS]],
    ),
    post("/tokenize", "Tokenize a text", &["content"]),
    post("/detokenize", "Write tokens as text", &["tokens"]),
    post("/apply-template", "Write a chat as the model's template does", &["messages"]),
    get("/v1/models", "List the model"),
    get("/v1/models/{model}", "Describe the model"),
    get("/props", "Describe the server"),
    get("/health", "Whether requests are answered"),
    get("/metrics", "Counters and histograms for Prometheus"),
    get("/orlop/live", "Watch pages, running requests and the queue"),
    get("/openapi.json", "This description"),
    get("/", "The page"),
    asks("/v1/embeddings", "Make embeddings of texts", &["input"], &[&[bounds::DIMENSIONS]]),
    asks("/v1/rerank", "Rank documents for a query", &["query", "documents"], &[&[bounds::TOP_N]]),
];

/// The description of the API ([OpenAPI 3.1](https://spec.openapis.org/oas/v3.1.0)).
pub(crate) fn describe() -> Json {
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        paths.insert(endpoint.path.to_owned(), json!({ endpoint.method: operation(&endpoint) }));
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "orlop", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Error": {
                "type": "object",
                "required": ["error"],
                "properties": { "error": {
                    "type": "object",
                    "required": ["message", "type", "param", "code"],
                    "properties": {
                        "message": { "type": "string" },
                        "type": { "type": "string" },
                        "param": { "type": ["string", "null"] },
                        "code": { "type": ["string", "null"] },
                    },
                } },
            } },
        },
    })
}

fn operation(endpoint: &Endpoint) -> Json {
    let error = json!({ "$ref": "#/components/schemas/Error" });
    let refused = json!({ "description": "Refused", "content": { "application/json": { "schema": error } } });
    let mut operation = json!({
        "summary": endpoint.summary,
        "responses": { "200": { "description": "Done" }, "4XX": refused, "503": refused },
    });
    if endpoint.path.contains('{') {
        operation["parameters"] =
            json!([{ "name": "model", "in": "path", "required": true, "schema": { "type": "string" } }]);
    }
    if endpoint.method == "post" {
        let mut properties: Map<String, Json> =
            endpoint.required.iter().map(|field| ((*field).to_owned(), json!({}))).collect();
        properties.extend(endpoint.numbers.iter().copied().flatten().map(|bound| {
            let kind = if bound.whole { "integer" } else { "number" };
            let schema = json!({ "type": [kind, "null"], "minimum": bound.least, "maximum": bound.most });
            (bound.field.to_owned(), schema)
        }));
        let schema = json!({ "type": "object", "required": endpoint.required, "properties": properties });
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}
