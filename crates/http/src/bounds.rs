//! Every bound of the server, in one place. Those of numbers are part of the API's description (`/openapi.json`), by which they
//! are tested.

use std::time::Duration;

/// A number of a request: its field, and what it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NumberBound {
    pub(crate) field: &'static str,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Fractions are refused.
    pub(crate) whole: bool,
}

const fn number(field: &'static str, least: f64, most: f64) -> NumberBound {
    NumberBound { field, least, most, whole: false }
}

const fn whole(field: &'static str, least: f64, most: f64) -> NumberBound {
    NumberBound { field, least, most, whole: true }
}

/// Larger integers have no exact form as a number of JSON.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub(crate) const TEMPERATURE: NumberBound = number("temperature", 0.0, 100.0);
pub(crate) const TOP_P: NumberBound = number("top_p", 0.0, 1.0);
pub(crate) const MIN_P: NumberBound = number("min_p", 0.0, 1.0);
/// Less than 1: all tokens.
pub(crate) const TOP_K: NumberBound = whole("top_k", -1.0, 1_000_000.0);
pub(crate) const PRESENCE_PENALTY: NumberBound = number("presence_penalty", -100.0, 100.0);
pub(crate) const FREQUENCY_PENALTY: NumberBound = number("frequency_penalty", -100.0, 100.0);
pub(crate) const REPEAT_PENALTY: NumberBound = number("repeat_penalty", 0.001, 100.0);
pub(crate) const REPETITION_PENALTY: NumberBound = number("repetition_penalty", 0.001, 100.0);
/// Less than 0: all tokens.
pub(crate) const REPEAT_LAST: NumberBound = whole("repeat_last_n", -1.0, 1_000_000.0);
/// Less than 0: a random one.
pub(crate) const SEED: NumberBound = whole("seed", -EXACT, EXACT);
pub(crate) const ANSWERS: NumberBound = whole("n", 1.0, 64.0);
pub(crate) const BEST_OF: NumberBound = whole("best_of", 1.0, 64.0);
/// More than the context leaves is the rest of the context; less than 0: all of it.
pub(crate) const MAX_TOKENS: NumberBound = whole("max_tokens", -1.0, EXACT);
pub(crate) const MAX_COMPLETION_TOKENS: NumberBound = whole("max_completion_tokens", -1.0, EXACT);
pub(crate) const MAX_OUTPUT_TOKENS: NumberBound = whole("max_output_tokens", -1.0, EXACT);
pub(crate) const N_PREDICT: NumberBound = whole("n_predict", -1.0, EXACT);
pub(crate) const TOP_LOGPROBS: NumberBound = whole("top_logprobs", 0.0, 20.0);
/// Of the legacy completions.
pub(crate) const LOGPROBS: NumberBound = whole("logprobs", 0.0, 20.0);
/// Of the native completions.
pub(crate) const N_PROBS: NumberBound = whole("n_probs", 0.0, 100.0);
pub(crate) const DIMENSIONS: NumberBound = whole("dimensions", 1.0, EXACT);
/// Of documents that are ranked.
pub(crate) const TOP_N: NumberBound = whole("top_n", 1.0, EXACT);
/// Of one token.
pub(crate) const BIAS: NumberBound = number("logit_bias", -100.0, 100.0);

/// A list or a text of a request: its field, and how long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LengthBound {
    pub(crate) field: &'static str,
    pub(crate) most: usize,
    /// What is counted.
    pub(crate) unit: &'static str,
}

const fn length(field: &'static str, most: usize, unit: &'static str) -> LengthBound {
    LengthBound { field, most, unit }
}

pub(crate) const STOPS: LengthBound = length("stop", 16, "texts");
pub(crate) const STOP_BYTES: LengthBound = length("stop", 256, "bytes");
pub(crate) const BIASES: LengthBound = length("logit_bias", 1024, "tokens");
/// Of a text that names tokens.
pub(crate) const BIAS_BYTES: LengthBound = length("logit_bias", 256, "bytes");
pub(crate) const MESSAGES: LengthBound = length("messages", 8192, "messages");
pub(crate) const TOOLS: LengthBound = length("tools", 512, "tools");
pub(crate) const PROMPTS: LengthBound = length("prompt", 64, "prompts");
/// Of embeddings.
pub(crate) const INPUTS: LengthBound = length("input", 2048, "texts");
pub(crate) const DOCUMENTS: LengthBound = length("documents", 2048, "documents");
pub(crate) const MODEL_BYTES: LengthBound = length("model", 512, "bytes");

/// Answers of one request.
pub(crate) const CHOICES: usize = 128;

/// Bytes of a request's body.
pub(crate) const BODY_BYTES: usize = 8 << 20;
/// Values in a request's JSON: each takes some hundred bytes.
pub(crate) const JSON_VALUES: usize = 1 << 18;
/// Bytes of a request's head.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// Headers of a request.
pub(crate) const HEADERS: usize = 100;
/// Bytes of an answer that wait for a slow reader; then the sequence pauses.
pub(crate) const RING_BYTES: usize = 64 << 10;
/// Events that wait for a slow reader before texts are joined.
pub(crate) const RING_EVENTS: usize = 64;
/// Bytes of an answer that is not streamed, as JSON.
pub(crate) const ANSWER_BYTES: usize = 256 << 20;
/// Bytes that a slow reader must take in the time of a write.
pub(crate) const SLOWEST_BYTES: usize = 4 << 10;
/// Events that wait for a slow observer before they are dropped.
pub(crate) const LOG_EVENTS: usize = 4096;
/// Requests whose JSON, templates and tokens are worked on at the same time.
pub(crate) const TEXT_WORKERS: usize = 2;

/// Requests for embeddings that wait.
pub(crate) const EMBED_ASKS: usize = 64;

/// Silence of a stream after which a comment is sent.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Bounds of connections, which may differ from server to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerBounds {
    /// Connections at the same time. Default: 16,384.
    pub connections: usize,
    /// Requests that are running or in the queue. Default: 4,096.
    pub requests: usize,
    /// Tokens of the prompts of these requests, counted for each answer. Default: 16,777,216.
    pub tokens: usize,
    /// Time for the head of a request, and between two requests of a connection. Default: 30 s.
    pub head_time: Duration,
    /// Time for the body of a request. Default: 60 s.
    pub body_time: Duration,
    /// Time in which a reader that is behind must take 4 KiB. Default: 60 s.
    pub write_time: Duration,
    /// The longest estimated wait of a new request. Default: 600 s.
    pub queue_time: Duration,
}

impl Default for ServerBounds {
    fn default() -> ServerBounds {
        ServerBounds {
            connections: 16_384,
            requests: 4096,
            tokens: 16 << 20,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(60),
            write_time: Duration::from_secs(60),
            queue_time: Duration::from_secs(600),
        }
    }
}
