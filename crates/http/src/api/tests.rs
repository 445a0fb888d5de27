//! Tool calls and reasoning, in the form of each API: the engine says what it is told to.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use orlop_llm::ToolChoice;
use orlop_serve::{RequestEnd, RequestUsage};
use serde_json::{Value as Json, json};

use super::conversation::Conversation;
use super::fields::Fields;
use crate::engine::mailbox::{Mailbox, Message};
use crate::engine::ring::{Ended, Event, Generated, Times};
use crate::{fuzz, routes};

/// What the model says, token by token.
const SAID: [&str; 9] = [
    "<think>",
    "A sum.",
    "</think>",
    "Let me see.",
    "<tool_call>{\"name\": \"add\",",
    " \"arguments\": {\"a\"",
    ": 1}}</tool_call>",
    "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 2}}",
    "</tool_call>",
];

/// Gives one answer.
fn say(mailbox: &Mailbox) {
    loop {
        mailbox.wait(Duration::from_secs(1));
        for message in mailbox.take().messages {
            let Message::Submit { ring, .. } = message else { continue };
            ring.push(0, Event::Admitted { cached: 2 });
            for text in SAID {
                let text = text.to_owned();
                ring.push(0, Event::Text(Generated { text, tokens: 1, scores: Vec::new() }));
            }
            let (generated, none) = (SAID.len(), RequestUsage::default());
            let usage = RequestUsage { prompt: 10, cached: 2, generated, ..none };
            let ended = Ended { end: RequestEnd::Done, usage, stopped_by: None, times: Times::default() };
            ring.push(0, Event::End(ended));
            return;
        }
    }
}

/// The body of the answer to a request.
fn ask(path: &str, body: &Json) -> String {
    let front = fuzz::front();
    let mailbox = Arc::clone(&front.mailbox);
    let engine = std::thread::spawn(move || say(&mailbox));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bytes = runtime.block_on(async {
        let request =
            Request::post(path).header("host", "localhost").body(Body::from(body.to_string())).unwrap();
        let response = TowerToHyperService::new(routes::router(&front)).call(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap().to_bytes()
    });
    engine.join().unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn whole(path: &str, body: &Json) -> Json {
    serde_json::from_str(&ask(path, body)).unwrap()
}

fn streamed(path: &str, mut body: Json) -> Vec<Json> {
    body["stream"] = true.into();
    let text = ask(path, &body);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn chat() -> Json {
    json!({
        "messages": [{ "role": "user", "content": "add" }],
        "tools": [{ "type": "function", "function": { "name": "add", "parameters": { "type": "object" } } }],
    })
}

#[test]
fn calls_of_a_chat_are_told_from_text_and_reasoning() {
    let choice = whole("/v1/chat/completions", &chat())["choices"][0].clone();
    let message = &choice["message"];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(
        (&message["reasoning_content"], &message["content"]),
        (&json!("A sum."), &json!("Let me see."))
    );
    let calls = message["tool_calls"].as_array().unwrap();
    let arguments: Vec<&Json> = calls.iter().map(|call| &call["function"]["arguments"]).collect();
    assert_eq!(arguments, [r#"{"a":1}"#, r#"{"a":2}"#]);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let mut one = chat();
    one["parallel_tool_calls"] = false.into();
    let one = whole("/v1/chat/completions", &one)["choices"][0].clone();
    assert_eq!(one["message"]["tool_calls"].as_array().unwrap().len(), 1);
}

#[test]
fn every_delta_of_a_call_has_an_index_and_only_the_first_a_name() {
    let events = streamed("/v1/chat/completions", chat());
    let deltas: Vec<&Json> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    let calls: Vec<&Json> = deltas.iter().filter_map(|delta| delta["tool_calls"].get(0)).collect();
    assert_eq!(calls.iter().map(|call| call["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
    let arguments = calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap());
    assert_eq!(arguments.collect::<Vec<_>>(), ["", r#"{"a""#, ":1}", "", r#"{"a":2}"#]);
    for (place, call) in calls.iter().enumerate() {
        let is_first = [0, 3].contains(&place);
        assert_eq!(call.get("id").is_some_and(Json::is_string), is_first, "{call}");
        assert_eq!(call["function"].get("name").is_some(), is_first, "{call}");
        assert!(call["function"]["arguments"].is_string(), "{call}");
    }
    let joined = |key: &str| deltas.iter().filter_map(|delta| delta[key].as_str()).collect::<String>();
    assert_eq!((joined("reasoning_content"), joined("content")), ("A sum.".into(), "Let me see.".into()));
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn calls_of_a_message_are_blocks() {
    let body = json!({
        "max_tokens": 99,
        "messages": [{ "role": "user", "content": "add" }],
        "tools": [{ "name": "add", "input_schema": { "type": "object" } }],
    });
    let message = whole("/v1/messages", &body);
    assert_eq!(message["stop_reason"], "tool_use");
    assert_eq!(message["usage"]["cache_read_input_tokens"], 2);
    let blocks = message["content"].as_array().unwrap();
    let kinds: Vec<&Json> = blocks.iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!((&blocks[0]["thinking"], &blocks[3]["input"]), (&json!("A sum."), &json!({ "a": 2 })));
    let events = streamed("/v1/messages", body);
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("content_block_start"), of("content_block_stop")), (4, 4));
    let parts = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str());
    assert_eq!(parts.collect::<Vec<_>>(), [r#"{"a""#, ":1}", r#"{"a":2}"#]);
}

#[test]
fn calls_of_a_response_are_items() {
    let body = json!({ "input": "add", "tools": [{ "type": "function", "name": "add", "parameters": { "type": "object" } }] });
    let response = whole("/v1/responses", &body);
    assert_eq!(response["status"], "completed");
    let items = response["output"].as_array().unwrap();
    let kinds: Vec<&Json> = items.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
    assert_eq!((&items[2]["name"], &items[2]["arguments"]), (&json!("add"), &json!(r#"{"a":1}"#)));
    assert!(items.iter().all(|item| item["status"] == "completed"));
    assert_eq!(response["usage"]["input_tokens_details"]["cached_tokens"], 2);
    assert!(response["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
    let events = streamed("/v1/responses", body);
    assert_eq!(events.last().unwrap()["response"]["output"].as_array().unwrap().len(), 4);
    let of = |name| events.iter().filter(move |event| event["type"] == name);
    let deltas = of("response.function_call_arguments.delta").map(|event| &event["delta"]);
    assert_eq!(deltas.collect::<Vec<_>>(), [r#"{"a""#, ":1}", r#"{"a":2}"#]);
    let done = of("response.function_call_arguments.done");
    assert_eq!(done.map(|event| &event["arguments"]).collect::<Vec<_>>(), [r#"{"a":1}"#, r#"{"a":2}"#]);
}

#[test]
fn allowed_tools_leave_some_of_the_tools_and_may_require_one() {
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let asked = |choice: Json| {
        let body = json!({
            "messages": [{ "role": "user", "content": "add" }],
            "tools": [tool("add"), tool("look"), tool("stop")],
            "tool_choice": choice,
        });
        Conversation::of(Fields::of(&body).unwrap()).map(|chat| {
            let names =
                chat.options.tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
            (names.collect::<Vec<String>>(), chat.calls.choice)
        })
    };
    let allowed = |mode: &str, names: &[&str]| {
        let tools: Vec<Json> = names.iter().map(|name| tool(name)).collect();
        asked(json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": tools } }))
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    assert_eq!(allowed("auto", &["look", "add"]).unwrap(), (names(&["add", "look"]), ToolChoice::Auto));
    assert_eq!(allowed("required", &["stop"]).unwrap(), (names(&["stop"]), ToolChoice::Required));
    for wrong in [
        allowed("auto", &["other"]),
        allowed("none", &["add"]),
        allowed("auto", &[]),
        asked(json!({ "type": "allowed_tools" })),
        asked(json!({ "type": "allowed_tools", "mode": "auto", "tools": ["add"] })),
    ] {
        assert_eq!(wrong.unwrap_err().param.as_deref(), Some("tool_choice"));
    }
}
