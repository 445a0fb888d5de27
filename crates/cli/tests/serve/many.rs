//! Several models in one server.

use serde_json::Value;

use crate::process::Server;
use crate::rerankers::reranker;
use crate::support::Folder;
use crate::with_model::{json, orlop};

/// A small model of its own name.
fn made(folder: &Folder, name: &str) -> String {
    let synth = orlop::llm::Synth { layers: 1, vocabulary: 400, ..Default::default() };
    folder.file(&format!("{name}.gguf"), synth.bytes().unwrap())
}

#[test]
fn models_are_named_by_their_files_or_by_aliases() {
    let folder = Folder::new();
    let (one, two) = (made(&folder, "one"), made(&folder, "two"));
    let server = Server::start(&["-m", &one, "-m", &two, "--alias", "first"]);
    let body =
        |model: &str| format!(r#"{{"model":"{model}","prompt":[1,70],"max_tokens":2,"ignore_eos":true}}"#);
    for (name, status) in [("first", "200 OK"), ("two", "200 OK"), ("one", "404 Not Found")] {
        let answer = server.ask("POST", "/v1/completions", &body(name));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {answer}");
    }
    let list = server.ask("GET", "/v1/models", "");
    let list: Value = serde_json::from_str(list.split_once("\r\n\r\n").unwrap().1).unwrap();
    let states = list["data"].as_array().unwrap().iter().map(|model| &model["status"]["value"]);
    assert_eq!(states.collect::<Vec<_>>(), ["loaded", "loaded"]);
}

#[test]
fn the_plan_has_each_model_and_says_whether_they_fit_together() {
    let folder = Folder::new();
    let (one, two) = (made(&folder, "one"), made(&folder, "two"));
    let plan = |more: &[&str]| {
        json(
            &[&["serve", "--plan", "--json", "-c", "1024", "-t", "1", "-m", &one, "-m", &two], more].concat(),
        )
    };
    let free = plan(&[]);
    assert_eq!(free["fit_together"], true);
    let models = free["models"].as_array().unwrap();
    assert_eq!((&models[0]["name"], &models[1]["name"]), (&"one".into(), &"two".into()));
    let alone = json(&["serve", "--plan", "--json", "-c", "1024", "-t", "1", "-m", &one]);
    assert_eq!(models[0]["sequences"], alone["sequences"]);
    let total = alone["devices"][0]["total"].as_u64().unwrap();
    let budget = |bytes: u64| format!("cpu={bytes}");
    assert_eq!(plan(&["--budget", &budget(2 * total)])["fit_together"], true);
    assert_eq!(plan(&["--budget", &budget(2 * total - 1)])["fit_together"], false);
    let few = budget(total - 1);
    let run =
        orlop(&["serve", "-c", "1024", "-t", "1", "-m", &one, "-m", &two, "--port", "0", "--budget", &few]);
    let said = run.refusal(3);
    assert!(said.starts_with("one: ") && said.contains("available"), "{said}");
}

#[test]
fn models_that_cannot_be_told_apart_are_refused() {
    let folder = Folder::new();
    let (one, two) = (made(&folder, "one"), made(&folder, "two"));
    for (arguments, words) in [
        (&["-m", &one, "-m", &one][..], "two models are named one"),
        (&["-m", &one, "-m", &two, "--alias", "two"], "two models are named two"),
        (&["-m", &one, "--alias", "a", "--alias", "b"], "2 names for 1 models"),
        (&["-m", &one, "-m", &two, "--lora", &two], "--lora is for one model"),
        (&["-m", &one, "-m", "/nonexistent.gguf"], "/nonexistent.gguf"),
        (&["-m", &one, "-m", &two, "-md", &one], "--model-draft is for one model"),
        (&["-m", &one, "-md", "/nonexistent.gguf"], "/nonexistent.gguf"),
        (&["-m", &one, "--embeddings", "--lookup"], "--embeddings"),
    ] {
        let said = orlop(&[&["serve"], arguments].concat()).refusal(2);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn models_that_make_scores_are_served_beside_others_and_planned_with_them() {
    let folder = Folder::new();
    let (text, scores) = (made(&folder, "text"), folder.path("scores.gguf"));
    reranker(&scores);
    let models = ["-m", &text, "-m", &scores];
    let server = Server::start(&models);
    for (path, body, status) in [
        ("/v1/completions", r#"{"prompt":[1,70],"max_tokens":2}"#, "200 OK"),
        ("/v1/completions", r#"{"model":"scores","prompt":[1,70]}"#, "400 Bad Request"),
        ("/v1/rerank", r#"{"query":"a","documents":["b"]}"#, "200 OK"),
        ("/v1/rerank", r#"{"model":"text","query":"a","documents":["b"]}"#, "400 Bad Request"),
    ] {
        let answer = server.ask("POST", path, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} {body}: {answer}");
    }
    let settings = ["serve", "--plan", "--json", "-c", "1024", "-t", "1"];
    let plan = json(&[&settings[..], &models, &["--budget", "cpu=1GiB"]].concat());
    let [scores, text] = plan["models"].as_array().unwrap().as_slice() else { panic!("{plan}") };
    assert_eq!((&scores["name"], &text["name"]), (&"scores".into(), &"text".into()));
    assert!(scores.get("rows").is_none() && text["rows"] == 1024, "{plan}");
    // What stays in memory is not free for the other one.
    let number = |model: &Value, key: &str| model["devices"][0][key].as_u64().unwrap();
    assert_eq!(number(text, "free"), number(scores, "free") - number(scores, "total"));
}

#[test]
fn drafts_change_no_answer_and_a_draft_model_is_part_of_the_plan() {
    let folder = Folder::new();
    let (model, draft) = (made(&folder, "model"), made(&folder, "draft"));
    let body = r#"{"prompt":[1,70,71],"max_tokens":30,"temperature":0.7,"seed":5,"ignore_eos":true}"#;
    let answer = |more: &[&str]| {
        let server = Server::start(&[&["-m", &model], more].concat());
        let answer = server.ask("POST", "/v1/completions", body);
        let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let plain = answer(&[]);
    assert_eq!([answer(&["--lookup"]), answer(&["-md", &draft])], [plain.clone(), plain]);
    let plan = |command: &[&str]| json(&[command, &["--json", "-c", "1024", "-t", "1"]].concat());
    let bytes = |plan: &Value, key: &str| plan["devices"][0][key].as_u64().unwrap();
    let serve = ["serve", "--plan", "-m", &model];
    let (alone, pair) = (plan(&serve), plan(&[&serve[..], &["-md", &draft]].concat()));
    // As many rows of an equal model.
    assert_eq!(bytes(&pair, "kv"), 2 * bytes(&alone, "kv"));
    assert!(bytes(&pair, "compute") > bytes(&alone, "compute"));
    assert_eq!(pair["rows"], alone["rows"]);
}
