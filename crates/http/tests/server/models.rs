//! Several models in one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_http::{LoadedModel, ServedModel, ServerOptions};
use orlop_llm::{Engine, SamplingOptions};
use serde_json::{Value as Json, json};

use crate::support::{Running, blueprint, cpu, made, model, options, start_models};

/// A model that counts how often it is loaded.
struct Counted {
    served: ServedModel,
    loads: Arc<AtomicUsize>,
}

const PARALLEL: usize = 4;
/// Enough for answers that take a while.
const ROWS: u64 = 4096;

/// A model whose device has room for this many of its size and a half.
fn counted(name: &str, room: u64) -> Counted {
    let model = model();
    let size = blueprint(cpu(), &model, PARALLEL, ROWS, None).unwrap().forecast().unwrap().devices[0].total();
    let plan = move || blueprint(cpu(), &model, PARALLEL, ROWS, Some(size * room + size / 2));
    let (planned, loads) = (plan().unwrap(), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&loads);
    let load = move || {
        count.fetch_add(1, Ordering::Relaxed);
        Engine::load(plan()?, &mut |_, _| ()).map(LoadedModel::from)
    };
    Counted { served: ServedModel::new(name, planned, SamplingOptions::default(), load).unwrap(), loads }
}

/// A server of models of the same size, with room for some of them, and how often each is loaded.
fn start(names: &[&str], room: u64) -> (Running, Vec<Arc<AtomicUsize>>) {
    let counted: Vec<Counted> = names.iter().map(|name| counted(name, room)).collect();
    let loads = counted.iter().map(|counted| Arc::clone(&counted.loads)).collect();
    let models = counted.into_iter().map(|counted| counted.served).collect();
    (start_models(ServerOptions { parallel: PARALLEL, ..options() }, models), loads)
}

fn wanted(model: &str, tokens: usize) -> Json {
    json!({ "model": model, "prompt": [1, 70], "max_tokens": tokens, "temperature": 0, "ignore_eos": true })
}

/// Names and states of all models.
fn states(server: &Running) -> Vec<(String, String)> {
    let text = |json: &Json| json.as_str().unwrap().to_owned();
    let list = server.get("/v1/models").ok();
    let models = list["data"].as_array().unwrap().iter();
    models.map(|model| (text(&model["id"]), text(&model["status"]["value"]))).collect()
}

fn loaded(server: &Running) -> Vec<String> {
    states(server).into_iter().filter(|(_, state)| state == "loaded").map(|(name, _)| name).collect()
}

fn counts(loads: &[Arc<AtomicUsize>]) -> Vec<usize> {
    loads.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

#[test]
fn models_are_loaded_when_they_are_named_and_stay_while_there_is_room() {
    let (server, loads) = start(&["a", "b", "c"], 3);
    assert_eq!(loaded(&server), ["a"], "the first one is loaded at the start");
    let answer = server.post("/v1/completions", &wanted("b", 4)).ok();
    assert_eq!(answer["model"], "b");
    assert_eq!(loaded(&server), ["a", "b"]);
    for name in ["a", "b", "c", "a"] {
        let other = server.post("/v1/completions", &wanted(name, 4)).ok();
        assert_eq!(other["choices"][0]["text"], answer["choices"][0]["text"]);
    }
    assert_eq!((counts(&loads), loaded(&server).len()), (vec![1, 1, 1], 3));
    let unnamed = server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1 })).ok();
    assert_eq!(unnamed["model"], "a");
}

#[test]
fn the_model_that_was_not_used_for_longest_makes_room() {
    let (server, loads) = start(&["a", "b", "c"], 2);
    for (name, there) in [("b", ["a", "b"]), ("a", ["a", "b"]), ("c", ["a", "c"]), ("b", ["b", "c"])] {
        server.post("/v1/completions", &wanted(name, 2)).ok();
        assert_eq!(loaded(&server), there, "after {name}");
    }
    assert_eq!(counts(&loads), [1, 2, 1]);
    let text = server.get("/metrics").text().to_owned();
    let of = |name: &str| text.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
    let (planned, allocated) = (of("orlop_planned_bytes{"), of("orlop_allocated_bytes{"));
    assert_eq!((planned.len(), allocated.len()), (2, 2), "{text}");
    let bytes = |line: &&str| line.rsplit(' ').next().unwrap().to_owned();
    assert!(planned.iter().map(bytes).eq(allocated.iter().map(bytes)), "{planned:?} {allocated:?}");
}

#[test]
fn a_model_that_answers_is_not_unloaded_and_later_requests_to_it_wait_their_turn() {
    let (server, loads) = start(&["a", "b"], 1);
    let mut long = wanted("a", 4000);
    long["stream"] = true.into();
    let mut first = server.begin("/v1/completions", &long);
    assert_eq!(first.head().status, 200);
    assert!(!first.chunk().is_empty());
    let mut second = server.begin("/v1/completions", &wanted("b", 4));
    server.until("it waits", || server.metric("orlop_num_requests_waiting") == 1.0);
    let mut third = server.begin("/v1/completions", &wanted("a", 4));
    server.until("both wait", || server.metric("orlop_num_requests_waiting") == 2.0);
    assert_eq!(loaded(&server), ["a"]);
    let text = String::from_utf8(first.chunks()).unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let (second, third) = (second.answer().ok(), third.answer().ok());
    assert_eq!((&second["model"], &third["model"]), (&json!("b"), &json!("a")));
    assert_eq!(second["choices"][0]["text"], third["choices"][0]["text"]);
    assert_eq!(counts(&loads), [2, 1]);
}

#[test]
fn a_client_that_goes_away_while_its_model_waits_for_memory_is_forgotten() {
    let (server, loads) = start(&["a", "b"], 1);
    let mut long = wanted("a", 4000);
    long["stream"] = true.into();
    let mut first = server.begin("/v1/completions", &long);
    assert!(first.head().status == 200 && !first.chunk().is_empty());
    let second = server.begin("/v1/completions", &wanted("b", 4));
    server.until("it waits", || server.metric("orlop_num_requests_waiting") == 1.0);
    drop(second);
    server.until("it is gone", || server.metric("orlop_num_requests_waiting") == 0.0);
    drop(first);
    server.until_idle();
    assert_eq!((counts(&loads), loaded(&server)), (vec![1, 0], vec!["a".to_owned()]));
}

#[test]
fn a_name_that_no_model_has_is_an_error_in_every_api() {
    let (server, _) = start(&["a", "b"], 2);
    for (path, body) in [
        ("/v1/chat/completions", json!({ "messages": [{ "role": "user", "content": "a" }] })),
        ("/v1/completions", json!({ "prompt": "a" })),
        ("/v1/responses", json!({ "input": "a" })),
        ("/v1/messages", json!({ "max_tokens": 1, "messages": [{ "role": "user", "content": "a" }] })),
        ("/completion", json!({ "prompt": "a" })),
        ("/tokenize", json!({ "content": "a" })),
    ] {
        let mut body = body;
        body["model"] = "c".into();
        let answer = server.post(path, &body);
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["code"]), (404, &json!("model_not_found")), "{path}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("`c`") && message.contains("`a`, `b`"), "{message}");
    }
    assert_eq!(server.get("/v1/models/c").status, 404);
    assert_eq!(server.get("/v1/models/b").ok()["id"], "b");
    assert_eq!(server.get("/props?model=b").ok()["model_alias"], "b");
    assert_eq!(server.get("/props?model=c").status, 404);
    assert_eq!(server.get("/props").ok()["model_alias"], "a");
}

#[test]
fn a_model_that_cannot_be_loaded_fails_its_requests_and_no_others() {
    let good = counted("a", 2);
    let planned = blueprint(cpu(), &model(), PARALLEL, 512, None).unwrap();
    let unknown = || orlop_llm::Error::EmptyPrompt;
    let bad = ServedModel::new("b", planned, SamplingOptions::default(), move || Err(unknown())).unwrap();
    let server = start_models(ServerOptions { parallel: PARALLEL, ..options() }, vec![good.served, bad]);
    let answer = server.post("/v1/completions", &wanted("b", 4));
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(answer.status == 500 && message.contains("cannot be loaded"), "{answer:?}");
    server.post("/v1/completions", &wanted("a", 4)).ok();
    assert_eq!(states(&server)[1].1, "unloaded");
}

#[test]
fn models_have_their_own_vocabularies_and_limits() {
    let other = made(Vec::new());
    let small = crate::support::served("small", cpu(), &other, PARALLEL, 128);
    let large = crate::support::served("large", cpu(), &model(), PARALLEL, 512);
    let server = start_models(ServerOptions { parallel: PARALLEL, ..options() }, vec![large, small]);
    let lengths = server.get("/v1/models").ok()["data"].as_array().unwrap().clone();
    assert_eq!(lengths.iter().map(|model| &model["max_model_len"]).collect::<Vec<_>>(), [512, 128]);
    let long = |model: &str| json!({ "model": model, "prompt": vec![70; 200], "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &long("small")).status, 400);
    server.post("/v1/completions", &long("large")).ok();
}
