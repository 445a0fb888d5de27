//! What cannot be downloaded, and the exit statuses that say why.

use std::fs;

use crate::hub_server::{HubServer, Kept, REPOSITORY, Reply, kept, listing, noise};
use crate::support::Folder;
use crate::{command, finished, pull};

fn files() -> Vec<Kept> {
    vec![kept("m-Q8_0.gguf", noise(1000)), kept("m-F16.gguf", noise(10))]
}

#[test]
fn unknown_models_and_files_end_with_status_2() {
    let server = HubServer::start(files());
    for (model, words) in [
        ("org/other", "has no model org/other"),
        (&format!("{REPOSITORY}:Q4_0"), "has no Q4_0; it has m-F16.gguf, m-Q8_0.gguf"),
        (&format!("{REPOSITORY}:m.gguf"), "has no m.gguf"),
        ("nothing", "org/repo"),
        ("org/../model", "org/repo"),
    ] {
        let said = pull(&server, &Folder::new(), model).refusal(2);
        assert!(said.contains(words), "{model}: {said}");
    }
    let run = finished(command(&server.endpoint(), &Folder::new()).args(["run", "-hf", "org/other", "a"]));
    assert!(run.refusal(2).contains("org/other"));
    let said = pull(&HubServer::start(Vec::new()), &Folder::new(), REPOSITORY).refusal(2);
    assert!(said.contains("no GGUF files"), "{said}");
}

#[test]
fn a_model_that_needs_a_token_says_so() {
    for (status, of_files) in [(401, false), (403, false), (401, true), (403, true)] {
        let server = HubServer::with_fault(files(), move |asked, _| {
            (asked.is_file() == of_files).then(|| Reply::new(status, "Access is restricted"))
        });
        let said = pull(&server, &Folder::new(), REPOSITORY).refusal(2);
        assert!(said.contains(&status.to_string()) && said.contains("HF_TOKEN"), "{said}");
    }
}

#[test]
fn a_hub_that_does_not_work_ends_with_status_1() {
    type Replies = fn() -> Reply;
    let cases: [(Replies, &str); 6] = [
        (|| Reply::new(500, "oh"), "status 500"),
        (|| Reply::new(200, "<html>"), "does not answer as a hub does"),
        (|| Reply::new(200, "{}"), "no commit"),
        (|| Reply { cut: Some(3), ..Reply::new(200, "{\"sha\"") }, "cannot read"),
        (|| Reply::redirect("/again"), "again and again"),
        (|| Reply::redirect("file:///etc/passwd"), "no address"),
    ];
    for (reply, words) in cases {
        let server = HubServer::with_fault(files(), move |_, _| Some(reply()));
        let said = pull(&server, &Folder::new(), REPOSITORY).refusal(1);
        assert!(said.contains(words), "{words}: {said}");
    }
    // Port 9 discards; it is not listened on.
    let said = finished(command("http://127.0.0.1:9", &Folder::new()).args(["pull", REPOSITORY])).refusal(1);
    assert!(said.contains("http://127.0.0.1:9/api/models/"), "{said}");
    for endpoint in ["ftp://a", "localhost", "http://user@host", "http://a\"b"] {
        let said = finished(command(endpoint, &Folder::new()).args(["pull", REPOSITORY])).refusal(2);
        assert!(said.contains("HF_ENDPOINT"), "{said}");
    }
}

#[test]
fn a_file_that_is_not_what_was_promised_is_not_kept() {
    let (mut file, home) = (kept("m-Q8_0.gguf", noise(1000)), Folder::new());
    file.sha256 = kept("", "other").sha256;
    let sha256 = file.sha256.clone();
    let server = HubServer::start(vec![file]);
    let said = pull(&server, &home, REPOSITORY).refusal(1);
    assert!(said.contains("SHA-256") && said.contains(&sha256), "{said}");
    let blobs = home.path("hub/models--org--model-GGUF/blobs");
    let lengths = fs::read_dir(blobs).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    assert_eq!(lengths.sum::<u64>(), 0);
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    for name in ["../m.gguf", "/m.gguf", "a/../../m.gguf", "a\\m.gguf", "c:m.gguf", "a//m.gguf", "./m.gguf"] {
        let server = HubServer::start(vec![kept(name, "bytes")]);
        let home = Folder::new();
        let said = pull(&server, &home, REPOSITORY).refusal(1);
        assert!(said.contains("is not a path in a repository"), "{name}: {said}");
        assert!(home.files().is_empty(), "nothing is written");
    }
    let server = HubServer::with_fault(Vec::new(), |_, _| {
        let mut json = listing(&[kept("m.gguf", "bytes")]);
        json["sha"] = "../../../../x".into();
        Some(Reply::new(200, json.to_string()))
    });
    assert!(pull(&server, &Folder::new(), REPOSITORY).refusal(1).contains("no commit"));
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let (server, home) = (HubServer::start(files()), Folder::new());
    let file = home.file("file", "not a folder");
    let mut pull = command(&server.endpoint(), &home);
    let said = finished(pull.env("HF_HUB_CACHE", &file).args(["pull", REPOSITORY])).refusal(1);
    assert!(said.contains(&format!("cannot write {file}/")) && said.ends_with("another folder"), "{said}");
}

#[test]
fn without_curl_the_sentence_names_it() {
    let mut pull = command("http://127.0.0.1:9", &Folder::new());
    let said = finished(pull.env("PATH", "/nonexistent").args(["pull", REPOSITORY])).refusal(1);
    assert!(said.contains("there is no curl"), "{said}");
}
