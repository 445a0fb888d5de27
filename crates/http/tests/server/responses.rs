//! `/v1/responses`.

use serde_json::{Value as Json, json};

use crate::support::start;

#[test]
fn a_response_is_the_same_whole_and_in_a_stream() {
    let server = start();
    let wanted = |stream: bool| json!({ "input": "Name three colours.", "max_output_tokens": 9, "temperature": 0, "ignore_eos": true, "stream": stream });
    let whole = server.post("/v1/responses", &wanted(false)).ok();
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(whole["usage"]["output_tokens"], 9);
    let answer = server.post("/v1/responses", &wanted(true));
    assert!(!answer.text().contains("[DONE]"));
    let events = answer.events();
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let [created, going, item, part, deltas @ .., text, part_done, item_done, last] = names.as_slice() else {
        panic!("{names:?}")
    };
    assert_eq!(
        [*created, going, item, part],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
    );
    assert!(deltas.iter().all(|name| *name == "response.output_text.delta"));
    assert_eq!(
        [*text, part_done, item_done, last],
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
    );
    assert!(events.iter().enumerate().all(|(place, event)| event["sequence_number"] == place));
    let deltas: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    let said = |response: &Json| response["output"][0]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(deltas, said(&whole));
    assert_eq!(said(&events[events.len() - 1]["response"]), deltas);
}

#[test]
fn the_same_conversation_is_the_same_prompt_in_all_apis() {
    let server = start();
    let input = json!([
        { "role": "developer", "content": "Be short." },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "add" }] },
        { "type": "function_call", "call_id": "c", "name": "add", "arguments": "{\"a\":1}" },
        { "type": "function_call_output", "call_id": "c", "output": "three" },
        { "type": "web_search_call", "id": "w" },
        { "role": "user", "content": "thanks" },
    ]);
    let messages = json!([
        { "role": "system", "content": "Be short." },
        { "role": "user", "content": "add" },
        { "role": "assistant", "tool_calls": [{ "id": "c", "type": "function", "function": { "name": "add", "arguments": "{\"a\":1}" } }] },
        { "role": "tool", "tool_call_id": "c", "content": "three" },
        { "role": "user", "content": "thanks" },
    ]);
    let counted = server.post("/v1/responses/input_tokens", &json!({ "input": input })).ok();
    let other = server.post("/v1/chat/completions/input_tokens", &json!({ "messages": messages })).ok();
    assert_eq!(counted["input_tokens"], other["input_tokens"]);
}

#[test]
fn what_would_have_to_be_stored_is_refused() {
    let server = start();
    let refused = server.post("/v1/responses", &json!({ "input": "a", "previous_response_id": "resp_1" }));
    assert_eq!(
        (refused.status, refused.json()["error"]["param"].clone()),
        (400, json!("previous_response_id"))
    );
}
