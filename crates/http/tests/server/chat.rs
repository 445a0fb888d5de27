//! `/v1/chat/completions`.

use serde_json::{Value as Json, json};

use crate::support::start;

/// A chat of one message, with more fields.
pub(crate) fn chat(fields: Json) -> Json {
    let mut json = json!({
        "messages": [{ "role": "user", "content": "Name three colours." }],
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": true,
    });
    let more = fields.as_object().unwrap().clone();
    json.as_object_mut().unwrap().extend(more);
    json
}

/// The text of the deltas of one choice.
pub(crate) fn joined(events: &[Json], choice: u64) -> String {
    let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
    let texts = choices
        .filter(|found| found["index"] == choice)
        .filter_map(|found| found["delta"]["content"].as_str());
    texts.collect()
}

#[test]
fn an_answer_is_the_same_whole_and_in_a_stream() {
    let server = start();
    let whole = server.post("/v1/chat/completions", &chat(json!({}))).ok();
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["choices"][0]["message"]["role"], "assistant");
    let usage = &whole["usage"];
    assert_eq!(usage["completion_tokens"], 12);
    assert_eq!(usage["total_tokens"].as_u64().unwrap(), usage["prompt_tokens"].as_u64().unwrap() + 12);

    let options = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let answer = server.post("/v1/chat/completions", &chat(options));
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    let events = answer.events();
    assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": null }));
    assert_eq!(joined(&events, 0), whole["choices"][0]["message"]["content"].as_str().unwrap());
    let [.., last, counted] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert_eq!(counted["choices"], json!([]));
    assert_eq!(counted["usage"]["completion_tokens"], 12);
    for event in &events {
        assert_eq!(event["object"], "chat.completion.chunk");
        assert_eq!((&event["id"], &event["created"]), (&events[0]["id"], &events[0]["created"]));
    }
    // The whole prompt was cached but for the token behind which the answer begins.
    let prompt = usage["prompt_tokens"].as_u64().unwrap();
    assert_eq!(counted["usage"]["prompt_tokens_details"]["cached_tokens"], prompt - 1);
}

#[test]
fn usage_comes_only_if_it_is_asked_for() {
    let server = start();
    let answer = server.post("/v1/chat/completions", &chat(json!({ "stream": true })));
    assert!(
        answer.events().iter().all(|event| event.get("usage").is_none() && event["choices"] != json!([]))
    );
}

#[test]
fn choices_share_a_prompt_and_differ_by_their_seeds() {
    let server = start();
    let wanted = chat(json!({ "n": 3, "temperature": 1.5, "seed": 7 }));
    let first = server.post("/v1/chat/completions", &wanted).ok();
    let texts = |json: &Json| -> Vec<Json> {
        json["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|choice| choice["message"]["content"].clone())
            .collect()
    };
    let all = texts(&first);
    assert_eq!(all.len(), 3);
    assert!(all[0] != all[1] && all[1] != all[2], "{all:?}");
    assert_eq!(texts(&server.post("/v1/chat/completions", &wanted).ok()), all);
    assert_eq!(first["usage"]["completion_tokens"], 36);
    // A choice with the next seed is the next choice.
    let second = server.post("/v1/chat/completions", &chat(json!({ "temperature": 1.5, "seed": 8 }))).ok();
    assert_eq!(second["choices"][0]["message"]["content"], all[1]);
    let events = server
        .post("/v1/chat/completions", &chat(json!({ "n": 2, "stream": true, "temperature": 1.5, "seed": 7 })))
        .events();
    assert_eq!([joined(&events, 0), joined(&events, 1)].map(Json::from).as_slice(), &all[..2]);
}

#[test]
fn log_probabilities_are_of_every_token() {
    let server = start();
    let json =
        server.post("/v1/chat/completions", &chat(json!({ "logprobs": true, "top_logprobs": 3 }))).ok();
    let content = json["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    assert_eq!(content.len(), 12);
    for entry in &content {
        // The likeliest token was taken.
        assert_eq!(entry["top_logprobs"][0]["token"], entry["token"]);
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 3);
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
    }
    let bytes: Vec<u8> = content
        .iter()
        .flat_map(|entry| entry["bytes"].as_array().unwrap())
        .map(|byte| byte.as_u64().unwrap() as u8)
        .collect();
    assert_eq!(String::from_utf8_lossy(&bytes), json["choices"][0]["message"]["content"].as_str().unwrap());
}

#[test]
fn a_stop_ends_the_answer_before_it() {
    let server = start();
    let whole = server.post("/v1/chat/completions", &chat(json!({}))).ok();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let middle: String = text.chars().skip(text.chars().count() / 2).take(2).collect();
    let stopped = server.post("/v1/chat/completions", &chat(json!({ "stop": [middle] }))).ok();
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert_eq!(stopped["choices"][0]["message"]["content"], text[..text.find(&middle).unwrap()]);
}

#[test]
fn a_bias_forbids_tokens_and_forces_one() {
    let server = start();
    let forced = server.post("/v1/chat/completions", &chat(json!({ "logit_bias": { "70": 100 } }))).ok();
    let text = forced["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let forbidden =
        server.post("/v1/chat/completions", &chat(json!({ "logit_bias": [[70, 100], [70, false]] }))).ok();
    assert_eq!(text.chars().collect::<std::collections::HashSet<_>>().len(), 1, "{text}");
    assert_ne!(forbidden["choices"][0]["message"]["content"], text);
}

#[test]
fn an_answer_is_the_same_alone_and_beside_others() {
    let server = start();
    let ask = |place: usize| {
        let content = format!("Question {place}: {}", "why? ".repeat(1 + place * 3));
        chat(
            json!({ "messages": [{ "role": "user", "content": content }], "max_tokens": 40, "temperature": 1, "seed": place }),
        )
    };
    let alone: Vec<Json> =
        (0..8).map(|place| server.post("/v1/chat/completions", &ask(place)).ok()).collect();
    let mut connections: Vec<_> =
        (0..8).map(|place| server.begin("/v1/chat/completions", &ask(place))).collect();
    for (connection, alone) in connections.iter_mut().zip(&alone) {
        let beside = connection.answer().ok();
        assert_eq!(beside["choices"], alone["choices"]);
    }
}

#[test]
fn more_requests_than_pages_all_finish() {
    let server = crate::support::start_with(crate::support::options(), 256);
    let ask = |place: usize| {
        let content = format!("{place} {}", "what is this? ".repeat(4));
        chat(
            json!({ "messages": [{ "role": "user", "content": content }], "max_tokens": 60, "ignore_eos": true }),
        )
    };
    let mut connections: Vec<_> =
        (0..24).map(|place| server.begin("/v1/chat/completions", &ask(place))).collect();
    for connection in &mut connections {
        let json = connection.answer().ok();
        assert_eq!(json["usage"]["completion_tokens"], 60);
    }
    assert!(
        server.metric("orlop_allocated_bytes{device=\"cpu\",model=\"default\"}")
            <= server.metric("orlop_planned_bytes{device=\"cpu\",model=\"default\"}")
    );
}
