//! `/v1/completions`, and what is known of the model.

use serde_json::{Value as Json, json};

use crate::support::start;

#[test]
fn prompts_are_texts_tokens_or_lists_of_them() {
    let server = start();
    let ask = |prompt: Json| {
        let wanted = json!({ "prompt": prompt, "max_tokens": 6, "temperature": 0 });
        server.post("/v1/completions", &wanted).ok()
    };
    let text = ask(json!("once upon a time"));
    let several = ask(json!(["once upon a time", [1, 70, 71, 72], "once upon a time"]));
    assert_eq!(text["object"], "text_completion");
    assert_eq!(several["choices"].as_array().unwrap().len(), 3);
    assert_eq!(several["choices"][0]["text"], text["choices"][0]["text"]);
    assert_eq!(several["choices"][2]["text"], text["choices"][0]["text"]);
    assert_eq!(several["choices"][1]["text"], ask(json!([1, 70, 71, 72]))["choices"][0]["text"]);
    let prompt = text["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(several["usage"]["prompt_tokens"], 2 * prompt + 4);
}

#[test]
fn log_probabilities_have_the_form_of_completions() {
    let server = start();
    let wanted =
        json!({ "prompt": "a b c", "max_tokens": 5, "temperature": 0, "ignore_eos": true, "logprobs": 2 });
    let choice = server.post("/v1/completions", &wanted).ok()["choices"][0].clone();
    let scores = &choice["logprobs"];
    let tokens: Vec<&str> =
        scores["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(tokens.concat(), choice["text"].as_str().unwrap());
    let mut offset = 0;
    for (place, token) in tokens.iter().enumerate() {
        assert_eq!(scores["text_offset"][place], offset);
        offset += token.chars().count();
        assert_eq!(scores["top_logprobs"][place][token], scores["token_logprobs"][place]);
    }
    let streamed = json!({ "prompt": "a b c", "max_tokens": 5, "temperature": 0, "ignore_eos": true, "logprobs": 2, "stream": true });
    let events = server.post("/v1/completions", &streamed).events();
    let offsets = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["text_offset"].as_array());
    assert_eq!(Json::from(offsets.flatten().cloned().collect::<Vec<Json>>()), scores["text_offset"]);
}

#[test]
fn an_echo_comes_before_the_answer() {
    let server = start();
    let wanted = |echo| json!({ "prompt": "hello", "max_tokens": 4, "temperature": 0, "echo": echo });
    let [with, without] = [true, false].map(|echo| server.post("/v1/completions", &wanted(echo)).ok());
    let text = |json: &Json| json["choices"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text(&with), format!("hello{}", text(&without)));
}

#[test]
fn the_model_is_listed_with_its_sizes() {
    let server = start();
    let list = server.get("/v1/models").ok();
    assert_eq!(list["data"][0]["id"], "default");
    assert_eq!(list["data"][0]["meta"]["n_vocab"], 400);
    assert_eq!(list["data"][0]["max_model_len"], crate::support::ROWS);
    assert_eq!(server.get("/v1/models/default").ok(), list["data"][0]);
    let other = server.get("/v1/models/org/other");
    assert_eq!((other.status, other.json()["error"]["code"].clone()), (404, json!("model_not_found")));
}

#[test]
fn max_tokens_beyond_the_context_is_the_rest_of_the_context() {
    let server = crate::support::start_with(crate::support::options(), 128);
    let wanted = json!({ "prompt": [1, 70, 71], "max_tokens": 1_000_000_000, "ignore_eos": true });
    let json = server.post("/v1/completions", &wanted).ok();
    // The last token needs no row.
    assert_eq!(json["usage"]["completion_tokens"], 128 - 3 + 1);
    assert_eq!(json["choices"][0]["finish_reason"], "length");
    let long: Vec<u32> = vec![70; 129];
    let refused = server.post("/v1/completions", &json!({ "prompt": long }));
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["code"]), (400, &json!("context_length_exceeded")));
    assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(129), &json!(128)));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("maximum context length is 128 tokens"), "{message}");
    assert!(message.contains("exceeds the available context size"), "{message}");
}

#[test]
fn biases_of_texts_are_bounded_in_tokens() {
    let server = start();
    let refused = |bias: Json| {
        let answer =
            server.post("/v1/completions", &json!({ "prompt": [1], "max_tokens": 1, "logit_bias": bias }));
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("logit_bias")));
    };
    refused(json!([["x".repeat(300), 1]]));
    refused(vec![json!(["qzxjvkwq".repeat(30), 1]); 100].into());
    let short = json!({ "prompt": [1], "max_tokens": 1, "logit_bias": [["ab", 1]] });
    assert_eq!(server.post("/v1/completions", &short).status, 200);
}
