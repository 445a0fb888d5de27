//! `--prompt-cache`: a prompt that is not processed again.

use serde_json::Value;

use crate::support::Folder;
use crate::with_model::{default_model, json, orlop};

const PROMPT: &str = "One ship sailed from Rotterdam to Lisbon with a cargo of salt, and the other one";

fn run(cache: &[&str], more: &[&str], prompt: &str) -> Value {
    json(&[&["run", "--json", "-n", "12", "-c", "256", "-t", "2"], cache, more, &[prompt]].concat())
}

#[test]
fn a_second_run_feeds_only_what_differs_and_prints_the_same_text() {
    let folder = Folder::new();
    let file = folder.path("prompt.state");
    let cache = ["--prompt-cache", &file];
    for sampling in
        [&["--temp", "0"][..], &["-s", "7", "--repeat-penalty", "1.2"], &["--temp", "0", "--lookup"]]
    {
        let _ = std::fs::remove_file(&file);
        let plain = run(&[], sampling, PROMPT);
        let tokens = plain["prompt_tokens"].as_array().unwrap().len();
        assert_eq!(plain["cached"], 0);
        for cached in [0, tokens - 1] {
            let run = run(&cache, sampling, PROMPT);
            assert_eq!((&run["cached"], &run["tokens"]), (&cached.into(), &plain["tokens"]), "{sampling:?}");
        }
        // A prompt that goes on, and one that leaves the first in its middle.
        let longer = format!("{PROMPT} came from Oslo, where");
        for (prompt, cached) in [(longer.as_str(), tokens - 1), ("One ship sailed from Rotterdam home", 6)] {
            let (plain, run) = (run(&[], sampling, prompt), run(&cache, sampling, prompt));
            assert_eq!(run["tokens"], plain["tokens"], "{prompt}");
            assert!(run["cached"].as_u64().unwrap() >= cached as u64 - 2, "{run}");
        }
    }
    assert_eq!(folder.files(), ["prompt.state"]);
}

#[test]
fn damaged_and_foreign_files_are_errors_and_stay_as_they_are() {
    let folder = Folder::new();
    let file = folder.path("prompt.state");
    run(&["--prompt-cache", &file], &[], PROMPT);
    let saved = std::fs::read(&file).unwrap();
    let mut damaged = saved.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    let damaged = folder.file("damaged.state", damaged);
    let short = folder.file("short.state", &saved[..saved.len() / 2]);
    let text = folder.file("note.txt", "A shopping list.");
    let other = folder.path("other.gguf");
    assert_eq!(orlop(&["synth", &other, "--preset", "gpt2-124m"]).status, Some(0));
    let model = default_model();
    let cases: [(&[&str], &str, i32, &[&str]); 7] = [
        (&[], &damaged, 2, &["its checksum is", "--prompt-cache"]),
        (&[], &short, 2, &["bytes", "--prompt-cache"]),
        (&[], &text, 2, &["not a GGUF file"]),
        (&[], &model, 2, &["a file of `llama`", "`orlop-state`"]),
        (&["-m", &other], &file, 2, &["belongs to the model with digest"]),
        (&["-ctk", "q8_0"], &file, 2, &["keys f16", "keys q8_0"]),
        (&["-c", "8"], &file, 3, &["18 tokens", "context 8", "-c"]),
    ];
    for (options, path, status, expected) in cases {
        let before = std::fs::read(path).unwrap();
        let words = [&["run", "-n", "2"], options, &["--prompt-cache", path, "One ship"]].concat();
        let said = orlop(&words).refusal(status);
        assert!(expected.iter().all(|text| said.contains(text)), "{words:?}: {said}");
        assert!(std::fs::read(path).unwrap() == before, "{path} was changed");
    }
    // A prompt that does not fit leaves no file, and one that cannot be written says so.
    let new = folder.path("new.state");
    orlop(&["run", "-c", "8", "--prompt-cache", &new, PROMPT]).refusal(3);
    assert!(!std::path::Path::new(&new).exists());
    let said = orlop(&["run", "--prompt-cache", "/nowhere/at/all", PROMPT]).refusal(2);
    assert!(said.contains("/nowhere/at/all"), "{said}");
}
