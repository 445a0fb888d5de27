//! Answers that have to match a schema, a grammar, or the tools of a request.

use serde_json::{Value as Json, json};

use crate::chat::{chat, joined};
use crate::support::{Running, cpu, made, options, start, start_on};

fn schema() -> Json {
    json!({
        "type": "object",
        "properties": { "colour": { "enum": ["red", "green"] }, "count": { "type": "integer", "maximum": 9, "minimum": 1 } },
        "required": ["colour", "count"],
        "additionalProperties": false,
    })
}

fn fits(text: &str) -> bool {
    let Ok(json) = serde_json::from_str::<Json>(text) else { return false };
    let keys = json.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
    keys == Some(vec!["colour".to_owned(), "count".to_owned()])
        && ["red", "green"].contains(&json["colour"].as_str().unwrap_or_default())
        && json["count"].as_u64().is_some_and(|count| (1..=9).contains(&count))
}

fn wanted(fields: Json) -> Json {
    let mut wanted = chat(json!({ "max_tokens": 400, "ignore_eos": false, "temperature": 1, "seed": 3 }));
    wanted.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    wanted
}

fn tools() -> Json {
    json!([
        { "type": "function", "function": { "name": "paint", "parameters": schema() } },
        { "type": "function", "function": { "name": "wait", "parameters": { "type": "object", "properties": {} } } },
    ])
}

#[test]
fn a_schema_is_kept_in_every_api_and_every_answer() {
    let server = start();
    let format = json!({ "type": "json_schema", "json_schema": { "name": "paint", "schema": schema(), "strict": true } });
    let answer =
        server.post("/v1/chat/completions", &wanted(json!({ "response_format": format, "n": 3 }))).ok();
    for choice in answer["choices"].as_array().unwrap() {
        assert!(fits(choice["message"]["content"].as_str().unwrap()), "{choice}");
        assert_eq!(choice["finish_reason"], "stop");
    }
    let stream = wanted(json!({ "response_format": format, "stream": true }));
    assert!(fits(&joined(&server.post("/v1/chat/completions", &stream).events(), 0)));
    let format = json!({ "format": { "type": "json_schema", "name": "paint", "schema": schema() } });
    let response = json!({ "input": "Paint.", "text": format, "max_output_tokens": 400 });
    let response = server.post("/v1/responses", &response).ok();
    assert!(fits(response["output"][0]["content"][0]["text"].as_str().unwrap()), "{response}");
    for fields in [
        json!({ "json_schema": schema() }),
        json!({ "guided_json": schema().to_string() }),
        json!({ "structured_outputs": { "json": schema() } }),
    ] {
        let mut body = json!({ "prompt": "Paint", "n_predict": 400, "max_tokens": 400 });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert!(fits(server.post("/completion", &body).ok()["content"].as_str().unwrap()));
        assert!(fits(server.post("/v1/completions", &body).ok()["choices"][0]["text"].as_str().unwrap()));
    }
}

#[test]
fn grammars_and_expressions_are_kept() {
    let server = start();
    for (field, grammar, expected) in [
        ("grammar", "root ::= \"yes, \" (\"it is\" | \"it was\")", ["yes, it is", "yes, it was"]),
        ("grammar", "start: \"a\" \"b\"", ["ab", "ab"]),
        ("guided_regex", "x{3}|yy", ["xxx", "yy"]),
    ] {
        let body = json!({ "prompt": "Is it?", "n_predict": 100, field: grammar });
        let text = server.post("/completion", &body).ok()["content"].as_str().unwrap().to_owned();
        assert!(expected.contains(&text.as_str()), "{grammar}: {text:?}");
    }
    // All of it is certain, so one step gives it, and no more than was asked for.
    let body = json!({ "prompt": "Is it?", "n_predict": 3, "guided_regex": "abcdefghijklmnopqrstuvwxyz" });
    assert_eq!(server.post("/completion", &body).ok()["tokens_predicted"], 3);
}

#[test]
fn every_token_of_a_structured_answer_has_its_log_probability() {
    let server = start();
    let body =
        json!({ "prompt": "Is it?", "n_predict": 400, "n_probs": 2, "seed": 1, "json_schema": schema() });
    let scored = server.post("/completion", &body).ok();
    assert!(fits(scored["content"].as_str().unwrap()), "{scored}");
    assert_eq!(
        scored["completion_probabilities"].as_array().unwrap().len() as u64,
        scored["tokens_predicted"].as_u64().unwrap()
    );
}

fn calls(server: &Running, choice: Json) -> Vec<Json> {
    let fields = json!({ "tools": tools(), "tool_choice": choice, "parallel_tool_calls": false });
    let answer = server.post("/v1/chat/completions", &wanted(fields)).ok();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
    answer["choices"][0]["message"]["tool_calls"].as_array().unwrap().clone()
}

#[test]
fn tools_that_have_to_be_called_are() {
    let server = start();
    let names = |calls: &[Json]| -> Vec<String> {
        calls.iter().map(|call| call["function"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let required = calls(&server, json!("required"));
    assert!(["paint", "wait"].contains(&names(&required)[0].as_str()));
    let painted = calls(&server, json!({ "type": "function", "function": { "name": "paint" } }));
    assert_eq!(names(&painted), ["paint"]);
    assert!(fits(painted[0]["function"]["arguments"].as_str().unwrap()), "{painted:?}");
    let body = json!({
        "input": "Paint.", "max_output_tokens": 400, "parallel_tool_calls": false,
        "tools": [{ "type": "function", "name": "paint", "parameters": schema() }], "tool_choice": "required",
    });
    let response = server.post("/v1/responses", &body).ok();
    assert!(fits(response["output"][0]["arguments"].as_str().unwrap()), "{response}");
    let body = json!({
        "messages": [{ "role": "user", "content": "Paint." }], "max_tokens": 400,
        "tools": [{ "name": "paint", "input_schema": schema() }],
        "tool_choice": { "type": "tool", "name": "paint", "disable_parallel_tool_use": true },
    });
    let message = server.post("/v1/messages", &body).ok();
    assert_eq!(message["stop_reason"], "tool_use");
    assert!(fits(&message["content"][0]["input"].to_string()), "{message}");
}

#[test]
fn what_no_answer_can_match_is_refused_with_its_field() {
    let server = start();
    let refused = |field: &str, fields: Json| {
        let answer = server.post("/v1/chat/completions", &wanted(fields));
        assert_eq!(
            (answer.status, &answer.json()["error"]["param"]),
            (400, &json!(field)),
            "{}",
            answer.text()
        );
    };
    let format = |schema: Json| json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": schema } } });
    let deep = (0..40).fold(json!({}), |inner, _| json!({ "properties": { "a": inner } }));
    refused("response_format", format(deep));
    refused("response_format", format(json!({ "enum": vec!["x".repeat(100); 4000] })));
    refused("response_format", format(json!({ "type": "no type" })));
    refused("response_format", format(Json::Null));
    refused("response_format", json!({ "response_format": { "type": "yaml" } }));
    refused("guided_regex", json!({ "guided_regex": "(" }));
    refused("grammar", json!({ "grammar": format!("root ::= {}", "(".repeat(60_000)) }));
    refused("grammar", json!({ "grammar": "root ::= missing" }));
    refused("grammar", json!({ "grammar": 1 }));
    refused("guided_json", json!({ "json_schema": {}, "guided_json": {} }));
    refused("grammar", json!({ "grammar": "start: \"a\"", "tools": tools() }));
    refused("tool_choice", json!({ "tool_choice": "required" }));
    refused(
        "tool_choice",
        json!({ "tools": tools(), "tool_choice": { "type": "function", "function": { "name": "none" } } }),
    );
    // It can be read, and shows with the first token what it takes.
    let bomb = wanted(json!({ "guided_regex": "(a{1000}){1000}".repeat(50) }));
    let bomb = server.post("/v1/chat/completions", &bomb);
    assert_eq!(bomb.status, 400, "{}", bomb.text());
    assert!(bomb.text().contains("too much memory or time"), "{}", bomb.text());
    let pattern =
        json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": "(?=a)b" } } });
    let tool = |strict: bool| json!([{ "type": "function", "function": { "name": "f", "parameters": pattern, "strict": strict } }]);
    refused("tools", json!({ "tools": tool(true) }));
    let trusted = wanted(json!({ "tools": tool(false), "max_tokens": 1 }));
    assert_eq!(server.post("/v1/chat/completions", &trusted).status, 200);
}

#[test]
fn a_model_whose_template_knows_no_tools_calls_them_too() {
    let template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\
        <|{{ m.role }}|>{{ m.content }}{% endfor %}";
    let model = made(vec![("tokenizer.chat_template".to_owned(), template.into())]);
    let server = start_on(cpu(), options(), 1024, model);
    assert_eq!(server.get("/props").ok()["chat_template_caps"]["supports_tools"], true);
    let painted = calls(&server, json!({ "type": "function", "function": { "name": "paint" } }));
    assert!(fits(painted[0]["function"]["arguments"].as_str().unwrap()), "{painted:?}");
    let prompt = server.post("/apply-template", &wanted(json!({ "tools": tools() }))).ok();
    let prompt = prompt["prompt"].as_str().unwrap();
    assert!(prompt.starts_with("<|user|>You can call") && prompt.contains("\"paint\""), "{prompt}");
}
