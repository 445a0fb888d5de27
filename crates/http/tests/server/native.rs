//! llama.cpp's endpoints, the description of the API, the page and the live feed.

use serde_json::{Value as Json, json};

use crate::client::Connection;
use crate::support::{model, reranker, start, start_embedder};

#[test]
fn texts_become_tokens_and_tokens_texts() {
    let server = start();
    let tokens = server.post("/tokenize", &json!({ "content": "hello world" })).ok()["tokens"].clone();
    let pieces =
        server.post("/tokenize", &json!({ "content": "hello world", "with_pieces": true })).ok()["tokens"]
            .clone();
    let ids: Vec<&Json> = pieces.as_array().unwrap().iter().map(|piece| &piece["id"]).collect();
    assert_eq!(json!(ids), tokens);
    assert_eq!(server.post("/detokenize", &json!({ "tokens": tokens })).ok()["content"], "hello world");
    let special =
        server.post("/tokenize", &json!({ "content": "a", "add_special": true })).ok()["tokens"].clone();
    assert_eq!(special[0], 1);
    assert_eq!(server.post("/detokenize", &json!({ "tokens": [-1] })).status, 400);
    let prompt =
        server.post("/apply-template", &json!({ "messages": [{ "role": "user", "content": "hi" }] })).ok();
    assert_eq!(prompt["prompt"], "<|user|>hi\n<|assistant|>");
    let continued = json!({ "messages": [{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "I am" }] });
    assert_eq!(server.post("/apply-template", &continued).ok()["prompt"], "<|user|>hi\n<|assistant|>I am");
}

#[test]
fn a_native_completion_ends_with_its_reason() {
    let server = start();
    let wanted = |stream: bool| json!({ "prompt": "hello", "n_predict": 8, "temperature": 0, "ignore_eos": true, "n_probs": 2, "stream": stream });
    let whole = server.post("/completion", &wanted(false)).ok();
    assert_eq!((&whole["stop_type"], &whole["tokens_predicted"]), (&json!("limit"), &json!(8)));
    assert_eq!(whole["completion_probabilities"].as_array().unwrap().len(), 8);
    let events = server.post("/completion", &wanted(true)).events();
    let text: String = events.iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!(text, whole["content"].as_str().unwrap());
    let stops: Vec<bool> = events.iter().map(|event| event["stop"].as_bool().unwrap()).collect();
    assert!(stops.iter().rev().skip(1).all(|stop| !stop) && stops.last() == Some(&true));
}

#[test]
fn the_server_describes_itself() {
    let server = start();
    let props = server.get("/props").ok();
    assert_eq!(props["default_generation_settings"]["n_ctx"], crate::support::ROWS);
    assert_eq!(props["modalities"]["vision"], false);
    assert_eq!(props["chat_template_caps"]["supports_tools"], true);
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    let tag = page.header("etag").unwrap();
    let again = crate::client::request(server.address, "GET", "/", &[("If-None-Match", tag)], b"");
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(server.get("/page/none.js").status, 404);
}

#[test]
fn numbers_are_taken_within_the_described_bounds_only() {
    let (server, embedder, ranker) = (start(), start_embedder(model()).0, start_embedder(reranker()).0);
    let described = server.get("/openapi.json").ok();
    let mut count = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        let Some(schema) = methods.pointer("/post/requestBody/content/application~1json/schema") else {
            continue;
        };
        let server = match path.as_str() {
            "/v1/embeddings" => &embedder,
            "/v1/rerank" => &ranker,
            _ => &server,
        };
        let base = json!({
            "query": "a", "documents": ["b"],
            "messages": [{ "role": "user", "content": "a" }], "input": "a", "content": "a", "tokens": [70],
            "prompt": [1, 70], "max_tokens": 1, "logprobs": if path.contains("chat") { json!(true) } else { Json::Null },
        });
        let ask = |field: &str, value: Json| {
            let mut json = base.clone();
            json[field] = value;
            server.post(path, &json)
        };
        assert_eq!(server.post(path, &base).status, 200, "{path}");
        for (field, bound) in schema["properties"].as_object().unwrap() {
            let (Some(least), Some(most)) = (bound["minimum"].as_f64(), bound["maximum"].as_f64()) else {
                continue;
            };
            count += 1;
            let mut wrong = vec![json!(least - 1.0), json!("1"), json!([]), json!({}), json!(true)];
            // One more than the largest exact integer is no other number.
            wrong.push(json!(most * 2.0 + 1.0));
            if bound["type"][0] == "integer" {
                wrong.push(json!(0.5));
            }
            if least < -1e15 {
                wrong[0] = json!(least * 2.0);
            }
            for value in wrong {
                let answer = ask(field, value.clone());
                assert_eq!(answer.status, 400, "{path} {field} {value}: {}", answer.text());
                assert_eq!(answer.json()["error"]["param"], *field, "{path} {field} {value}");
            }
            let within = [least, most]
                .map(|value| if bound["type"][0] == "integer" { json!(value as i64) } else { json!(value) });
            for value in within {
                if field.starts_with("max_")
                    || ["n_predict", "best_of", "dimensions"].contains(&field.as_str())
                {
                    continue; // a whole context, more answers than there are, or numbers than the model gives
                }
                let answer = ask(field, value.clone());
                assert_eq!(answer.status, 200, "{path} {field} {value}: {}", answer.text());
            }
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn lists_and_texts_are_taken_within_their_bounds_only() {
    let server = start();
    let ask = |field: &str, value: Json| {
        let mut json = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 1 });
        json[field] = value;
        server.post("/v1/chat/completions", &json).status
    };
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    let biases: serde_json::Map<String, Json> = (0..400).map(|id| (id.to_string(), json!(1))).collect();
    for (field, value, status) in [
        ("stop", json!(vec!["x"; 16]), 200),
        ("stop", json!(vec!["x"; 17]), 400),
        ("stop", json!("x".repeat(256)), 200),
        ("stop", json!("x".repeat(257)), 400),
        ("stop", json!([1]), 400),
        ("tools", json!(vec![tool.clone(); 3]), 200),
        ("tools", json!(vec![tool.clone(); 513]), 400),
        ("tools", json!([{}]), 400),
        ("tool_choice", json!("required"), 400),
        ("logit_bias", json!(biases), 200),
        ("logit_bias", json!({ "400": 1 }), 400),
        ("logit_bias", json!({ "1": 101 }), 400),
        ("logit_bias", json!(vec![json!([1, 1]); 1025]), 400),
        ("logit_bias", json!([["a", -1], [70, false]]), 200),
        ("model", json!("x".repeat(513)), 400),
        ("response_format", json!({ "type": "text" }), 200),
        ("unknown_field", json!(1), 200),
        ("n", json!(null), 200),
    ] {
        assert_eq!(ask(field, value.clone()), status, "{field} {value}");
    }
    let prompts = json!({ "prompt": vec!["a"; 64], "n": 3, "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &prompts).status, 400);
}

#[test]
fn the_live_feed_shows_pages_running_requests_and_the_plan() {
    let server = start();
    let mut feed = Connection::open(server.address);
    feed.ask("GET", "/orlop/live", &[], b"");
    assert_eq!(feed.head().status, 200);
    let event = |feed: &mut Connection| loop {
        let text = String::from_utf8(feed.chunk()).unwrap();
        if let Some((name, data)) = text.strip_prefix("event: ").and_then(|text| text.split_once("\ndata: "))
        {
            return (name.to_owned(), serde_json::from_str::<Json>(data.trim()).unwrap());
        }
    };
    let (name, plan) = event(&mut feed);
    assert_eq!((name.as_str(), &plan["devices"][0]["name"]), ("plan", &json!("cpu")));
    assert!(plan["devices"][0]["kv"].as_u64().unwrap() > 0);
    let (name, empty) = event(&mut feed);
    assert_eq!((name.as_str(), &empty["running"]), ("snapshot", &json!([])));
    let running = server.begin(
        "/v1/completions",
        &json!({ "prompt": [1, 70, 71], "max_tokens": 200, "n": 64, "ignore_eos": true }),
    );
    let busy = loop {
        let (_, snapshot) = event(&mut feed);
        if snapshot["running"].as_array().is_some_and(|running| !running.is_empty()) {
            break snapshot;
        }
    };
    assert_eq!(busy["running"][0]["prompt"], 3);
    let id = &busy["running"][0]["id"];
    assert!(
        busy["uses"]
            .as_array()
            .unwrap()
            .iter()
            .any(|pages| pages["requests"].as_array().unwrap().contains(id)),
        "{busy}"
    );
    drop(running);
}
