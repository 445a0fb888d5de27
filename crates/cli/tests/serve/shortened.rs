use std::fs::OpenOptions;
use std::path::Path;

use orlop::llm::Synth;

use crate::process::Server;
use crate::support::Folder;

#[test]
fn a_server_survives_a_model_file_that_becomes_shorter() {
    let folder = Folder::new();
    let path = folder.path("model.gguf");
    let synth = Synth { vocabulary: 4096, width: 256, context: 1024, ..Synth::default() };
    synth.create(Path::new(&path), &mut |_, _| ()).unwrap();
    let server = Server::start(&["-m", &path, "--no-repack"]);
    let ask = || {
        let body = r#"{"prompt":[1,70,4000],"max_tokens":4,"temperature":0,"ignore_eos":true}"#;
        server.ask("POST", "/v1/completions", body)
    };
    let whole = ask();
    assert!(whole.starts_with("HTTP/1.1 200"), "{whole}");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 8).unwrap();
    for _ in 0..2 {
        let answer = ask();
        assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("can no longer be read"), "{answer}");
    }
    assert!(server.ask("GET", "/health", "").starts_with("HTTP/1.1 200"));
    assert_eq!(server.ended_by(nix::sys::signal::Signal::SIGTERM), Some(0));
}
