//! Requests from arbitrary bytes against all endpoints, with an engine that answers without a model: the body of a fuzz
//! target, and of a test.

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use orlop_llm::{ChatTemplate, Forecast, SamplingOptions, Synth, Tokenizer};
use orlop_serve::{Limits, RequestEnd, RequestUsage};

use crate::api::openapi::ENDPOINTS;
use crate::engine::live::Live;
use crate::engine::mailbox::{Mailbox, Message};
use crate::engine::ring::{Ended, Event, Generated, Score, Times};
use crate::event_log::EventLog;
use crate::front::{Front, Ready, ResidenceCell, Served};
use crate::model::ModelFacts;
use crate::options::{ServerObserver, ServerOptions};
use crate::routes;

/// A template with the marks of reasoning and of calls, so that answers are looked through for them.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls }}\n{% endfor %}{{ tools }}\
    {% if false %}<think></think><tool_call></tool_call>{% endif %}";

/// Texts of answers; what a request says chooses among them.
const TEXTS: [&str; 8] = [
    "a",
    " b\n",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "{\"name\": \"f\", \"arguments\": {}}",
    "é€",
];

/// A server without sockets and without a model.
#[derive(Debug)]
pub struct FuzzTarget {
    front: Arc<Front>,
    router: Router,
    runtime: tokio::runtime::Runtime,
    engine: Option<JoinHandle<()>>,
}

impl FuzzTarget {
    /// A server with a small vocabulary.
    ///
    /// # Panics
    /// If threads cannot be started.
    #[expect(clippy::new_without_default, reason = "it starts threads")]
    pub fn new() -> FuzzTarget {
        let front = front();
        let mailbox = Arc::clone(&front.mailbox);
        let engine = Some(std::thread::spawn(move || answer_all(&mailbox)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        FuzzTarget { router: routes::router(&front), front, runtime, engine }
    }

    /// Sends one request: the first byte chooses the endpoint, the rest is the body. Gives the status.
    ///
    /// # Panics
    /// If an answer blames the server, or is not what it should be.
    pub fn run(&self, bytes: &[u8]) -> u16 {
        let (first, body) = bytes.split_first().unwrap_or((&0, &[]));
        let endpoint = ENDPOINTS[usize::from(*first) % ENDPOINTS.len()];
        let method = if endpoint.method == "get" { Method::GET } else { Method::POST };
        if endpoint.path == "/orlop/live" {
            return 200; // it does not end
        }
        let request = Request::builder().method(method).uri(endpoint.path.replace(['{', '}'], ""));
        let request = request.header("host", "localhost").body(Body::from(body.to_vec())).expect("a request");
        let service = TowerToHyperService::new(self.router.clone());
        self.runtime.block_on(async {
            let response = service.call(request).await.expect("a response");
            let status = response.status().as_u16();
            assert!(status < 500, "{status} for {} {:?}", endpoint.path, String::from_utf8_lossy(body));
            let json = response.headers().get("content-type").is_some_and(|kind| kind == "application/json");
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            if json {
                let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
                let message = json.pointer("/error/message").and_then(serde_json::Value::as_str);
                assert_eq!(message.is_some(), status >= 400, "{json}");
            } else {
                std::str::from_utf8(&bytes).expect("UTF-8");
            }
            status
        })
    }
}

/// What connections share in a server that has a small vocabulary, and no engine.
pub(crate) fn front() -> Arc<Front> {
    let keys = Synth { vocabulary: 400, ..Synth::default() }.keys().expect("a model's keys");
    let tokenizer = Tokenizer::from_metadata(&keys).expect("a vocabulary");
    let log = EventLog::start(ServerObserver::default()).expect("no thread");
    let front = Arc::new(Front::new(ServerOptions::default(), ([127, 0, 0, 1], 80).into(), log));
    let limits = Limits {
        page_rows: 64,
        pages: 16,
        context: 1024,
        sequences: 8,
        parallel: 4,
        batches: vec![1, 64],
        shares: true,
        attention: 0.001,
    };
    let facts = ModelFacts { trained_context: 1024, vocabulary: 400, width: 64, parameters: 1, bytes: 1 };
    let ready = Ready {
        name: "default".to_owned(),
        index: 0,
        live: Arc::new(Live::new()),
        residence: ResidenceCell::default(),
        tokenizer: Arc::new(tokenizer),
        template: Arc::new(ChatTemplate::from_text(TEMPLATE, "<s>", "</s>")),
        sampling: SamplingOptions::default(),
        facts,
        limits,
        planned: Forecast { context: 1024, devices: Vec::new(), layers: Vec::new() },
        grammars: OnceLock::new(),
    };
    front
        .served
        .set(Served { texts: vec![Arc::new(ready)], embedders: Vec::new() })
        .expect("the first model");
    front.open();
    front
}

impl Drop for FuzzTarget {
    fn drop(&mut self) {
        self.front.mailbox.end_within(Duration::ZERO);
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

/// Answers every generation with a few texts.
fn answer_all(mailbox: &Mailbox) {
    while mailbox.ends().is_none() {
        mailbox.wait(Duration::from_secs(1));
        for message in mailbox.take().messages {
            let Message::Submit { generation, ring, .. } = message else { continue };
            for choice in 0..generation.choices() {
                let prompt = &generation.prompts[choice / generation.answers];
                ring.push(choice, Event::Admitted { cached: prompt.len() / 2 });
                let seed = prompt.iter().fold(choice, |seed, token| seed.wrapping_mul(31) + *token as usize);
                let count = generation.max_tokens.min(6);
                for place in 0..count {
                    let text = TEXTS[(seed >> (3 * place)) % TEXTS.len()].to_owned();
                    let score = |top| Score {
                        token: 70,
                        log_probability: f32::NEG_INFINITY,
                        top: vec![(70, -1.0); top],
                    };
                    let scores = generation.top.map(score).into_iter().collect();
                    ring.push(choice, Event::Text(Generated { text, tokens: 1, scores }));
                }
                let end = if seed % 2 == 0 { RequestEnd::Done } else { RequestEnd::Length };
                let usage = RequestUsage {
                    prompt: prompt.len(),
                    cached: prompt.len() / 2,
                    generated: count,
                    ..RequestUsage::default()
                };
                let stopped_by = generation.stops.first().cloned();
                ring.push(choice, Event::End(Ended { end, usage, stopped_by, times: Times::default() }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use orlop_testkit::Random;

    use super::*;

    /// Bodies that are answered, to be changed.
    const BODIES: [(u8, &str); 9] = [
        (
            0,
            r#"{"messages":[{"role":"user","content":"hi"}],"stream":true,"logprobs":true,"top_logprobs":2,"n":2,"stream_options":{"include_usage":true}}"#,
        ),
        (
            0,
            r#"{"messages":[{"role":"system","content":[{"type":"text","text":"é"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"3"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}],"tool_choice":"auto","max_tokens":5}"#,
        ),
        (
            2,
            r#"{"prompt":["a",[1,2,3]],"logprobs":1,"stop":["x","y"],"logit_bias":{"70":-1.5},"temperature":0.5,"seed":1,"max_tokens":4}"#,
        ),
        (
            2,
            r#"{"prompt":"\u00e9","echo":true,"stream":true,"top_k":-1,"repeat_last_n":-1,"ignore_eos":true}"#,
        ),
        (
            3,
            r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"1"},{"type":"reasoning","summary":[]}],"instructions":"b","stream":true,"tools":[{"type":"function","name":"f"},{"type":"web_search"}]}"#,
        ),
        (
            5,
            r#"{"model":"m","max_tokens":9,"system":[{"type":"text","text":"x-anthropic-billing-header: 1\nbe"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"u","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"u","content":"1"}]}],"tools":[{"name":"f","input_schema":{}}],"stream":true}"#,
        ),
        (7, r#"{"prompt":[1,2,70],"n_predict":3,"n_probs":2,"stream":true}"#),
        (8, r#"{"content":"a b","add_special":true,"with_pieces":true}"#),
        (9, r#"{"tokens":[1,70,71,399]}"#),
    ];

    /// What a change puts in.
    const PIECES: [&str; 24] = [
        "null",
        "-1",
        "1e400",
        "1e30",
        "0.5",
        "true",
        "[]",
        "{}",
        "\"\"",
        ",",
        "\"",
        "\\ud800",
        "[[",
        "]]",
        "}",
        "{\"a\":",
        "9007199254740993",
        "\"n\":64,",
        "\"stop\":[\"\"],",
        "\"role\"",
        "\"image_url\"",
        "\u{0}",
        "\"stream\":true",
        "é",
    ];

    fn changed(random: &mut Random) -> Vec<u8> {
        let (endpoint, body) = BODIES[random.index(BODIES.len())];
        let mut bytes = body.as_bytes().to_vec();
        for _ in 0..random.index(4) {
            let at = random.index(bytes.len());
            let to = (at + random.index(8)).min(bytes.len());
            match random.index(4) {
                0 => drop(bytes.splice(at..to, PIECES[random.index(PIECES.len())].bytes())),
                1 => drop(bytes.drain(at..to)),
                2 => bytes[at] = random.index(256) as u8,
                _ => {
                    // A whole value becomes another one.
                    let end = bytes[at..]
                        .iter()
                        .position(|byte| b",]}".contains(byte))
                        .map_or(bytes.len(), |end| at + end);
                    let start = bytes[..at]
                        .iter()
                        .rposition(|byte| b":[,".contains(byte))
                        .map_or(0, |start| start + 1);
                    drop(bytes.splice(start..end, PIECES[random.index(9)].bytes()));
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        let endpoint = if random.index(8) == 0 { random.index(ENDPOINTS.len()) as u8 } else { endpoint };
        bytes.insert(0, endpoint);
        bytes
    }

    #[test]
    fn requests_that_can_be_answered_are() {
        let target = FuzzTarget::new();
        for (endpoint, body) in BODIES {
            assert_eq!(target.run(&[&[endpoint], body.as_bytes()].concat()), 200, "{body}");
        }
    }

    #[test]
    fn no_request_makes_the_server_fail() {
        let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256);
        let (target, mut random) = (FuzzTarget::new(), Random::new(1));
        let (mut answered, mut refused) = (0, 0);
        for _ in 0..cases * 20 {
            match target.run(&changed(&mut random)) {
                200 => answered += 1,
                _ => refused += 1,
            }
        }
        // Both happen often enough for the test to mean something.
        assert!(answered > cases && refused > cases, "{answered} answered, {refused} refused");
    }
}
