//! `/v1/messages`.

use serde_json::{Value as Json, json};

use crate::support::start;

fn message(fields: Json) -> Json {
    let mut json = json!({
        "model": "any",
        "max_tokens": 10,
        "temperature": 0,
        "ignore_eos": true,
        "messages": [{ "role": "user", "content": "Name three colours." }],
    });
    json.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json
}

#[test]
fn a_message_is_the_same_whole_and_in_a_stream() {
    let server = start();
    let whole = server.post("/v1/messages", &message(json!({}))).ok();
    assert_eq!(
        (&whole["type"], &whole["role"], &whole["stop_reason"]),
        (&json!("message"), &json!("assistant"), &json!("max_tokens"))
    );
    assert_eq!(whole["usage"]["output_tokens"], 10);
    let answer = server.post("/v1/messages", &message(json!({ "stream": true })));
    let names: Vec<&str> = answer.text().lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert!(!answer.text().contains("[DONE]"));
    let events = answer.events();
    assert!(events.iter().zip(&names).all(|(event, name)| event["type"] == *name));
    let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, whole["content"][0]["text"].as_str().unwrap());
    let delta = &events[events.len() - 2];
    // The prompt of the second request is in the cache but for its last token.
    assert_eq!((&delta["usage"]["input_tokens"], &delta["usage"]["output_tokens"]), (&json!(1), &json!(10)));
}

#[test]
fn a_line_that_changes_with_each_request_does_not_spoil_the_cache() {
    let server = start();
    let with = |line: &str| {
        message(
            json!({ "system": [{ "type": "text", "text": format!("x-anthropic-billing-header: {line}\nBe short.") }] }),
        )
    };
    let first = server.post("/v1/messages", &with("one")).ok();
    let second = server.post("/v1/messages", &with("another one")).ok();
    assert_eq!(first["content"], second["content"]);
    assert_eq!(second["usage"]["input_tokens"], 1);
}

#[test]
fn tokens_are_counted_as_they_will_be_used() {
    let server = start();
    let counted = server.post("/v1/messages/count_tokens", &message(json!({}))).ok();
    let used = server.post("/v1/messages", &message(json!({}))).ok();
    assert_eq!(counted["input_tokens"], used["usage"]["input_tokens"]);
}

#[test]
fn results_of_tools_are_messages_of_their_own() {
    let server = start();
    let messages = json!([
        { "role": "user", "content": "add" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "t1", "name": "add", "input": { "a": 1 } }] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t1", "content": [{ "type": "text", "text": "three" }] },
            { "type": "text", "text": "thanks" },
        ] },
    ]);
    let openai = json!({ "messages": [
        { "role": "user", "content": "add" },
        { "role": "assistant", "content": null, "tool_calls": [{ "id": "t1", "type": "function", "function": { "name": "add", "arguments": "{\"a\":1}" } }] },
        { "role": "tool", "tool_call_id": "t1", "content": "three" },
        { "role": "user", "content": "thanks" },
    ] });
    let counted = server.post("/v1/messages/count_tokens", &json!({ "messages": messages })).ok();
    let other = server.post("/v1/chat/completions/input_tokens", &openai).ok();
    assert_eq!(counted["input_tokens"], other["input_tokens"]);
}

#[test]
fn errors_have_the_form_of_both_apis() {
    let server = start();
    let refused = server.post("/v1/messages", &json!({ "messages": [{ "role": "user", "content": "a" }] }));
    let json = refused.json();
    assert_eq!((refused.status, &json["type"]), (400, &json!("error")));
    assert_eq!(
        (&json["error"]["type"], &json["error"]["param"]),
        (&json!("invalid_request_error"), &json!("max_tokens"))
    );
}
