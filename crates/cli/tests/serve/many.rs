//! Several models in one server.

use serde_json::Value;

use crate::process::Server;
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
    ] {
        let said = orlop(&[&["serve"], arguments].concat()).refusal(2);
        assert!(said.contains(words), "{said}");
    }
}
