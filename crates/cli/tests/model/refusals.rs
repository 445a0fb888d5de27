use std::fs;

use crate::support::Folder;
use crate::with_model::orlop;

#[test]
fn invalid_model_files_are_named_with_the_error() {
    let folder = Folder::new();
    let whole =
        fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/tests/models/fixtures/llama-dense.Q4_0.gguf"))
            .unwrap();
    let cases = [
        (folder.file("empty.gguf", b""), "get a new copy"),
        (folder.file("magic.gguf", b"GGML............"), "use a .gguf file"),
        (folder.file("cut.gguf", &whole[..whole.len() - 1]), "get a new copy"),
        (folder.file("header.gguf", &whole[..100]), "get a new copy"),
        ("/nowhere/at/all.gguf".to_owned(), "); check the path"),
    ];
    for (file, expected) in &cases {
        for command in
            [&["run", "-m", file, "Hello"][..], &["plan", file], &["logits", "-m", file, "--tokens", "1"]]
        {
            let said = orlop(command).refusal(2);
            assert!(said.starts_with(file) && said.ends_with(expected), "{said}");
            assert_eq!(said, orlop(&["inspect", file]).refusal(2), "all commands say the same");
        }
    }
}

#[test]
fn a_model_without_a_vocabulary_still_gives_logits() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/tests/models/fixtures/llama-dense.Q4_0.gguf");
    let run = orlop(&["logits", "-m", file, "--tokens", "1,2", "--top", "1"]);
    assert_eq!((run.status, run.stdout.lines().count()), (Some(0), 2), "{run:?}");
    let said = orlop(&["run", "-m", file, "Hello"]).refusal(2);
    assert!(said.contains("no tokenizer"), "{said}");
}

#[test]
fn a_device_that_was_left_out_of_the_build_is_named_with_its_feature() {
    for (family, is_built_in) in [("wgpu", cfg!(feature = "wgpu")), ("cuda", cfg!(feature = "cuda"))] {
        let run = orlop(&["run", "--device", &format!("{family}7"), "Hello"]);
        assert_eq!(run.status, Some(2), "{run:?}");
        // A driver may print messages of its own.
        let said = run.stderr;
        assert!(said.contains(&format!("no device `{family}7`")), "{said}");
        assert_eq!(said.contains(&format!("without the feature `{family}`")), !is_built_in, "{said}");
    }
}

#[test]
fn prompts_that_do_not_fit_are_rejected() {
    let said = orlop(&["run", "-c", "4", "-n", "1", "one two three four five six seven"]).refusal(3);
    assert!(said.contains("context of 4") && said.contains("-c"), "{said}");
    let said = orlop(&["run", "-n", "1", ""]).refusal(2);
    assert!(said.contains("empty"), "{said}");
}

#[test]
fn invalid_arguments_are_rejected() {
    let cases: [(&[&str], &str); 12] = [
        (&["run", "--device", "abacus", "Hello"], "abacus"),
        (&["run", "--budget", "abacus=1G", "Hello"], "abacus"),
        (&["run", "--budget", "cpu=much", "Hello"], "bytes"),
        (&["run", "--place", "layers:0..2=abacus", "Hello"], "abacus"),
        (&["run", "--place", "wings=cpu", "Hello"], "wings"),
        (&["run", "--place", "layers:0..99=cpu", "Hello"], "0..99, but the model has 30"),
        (&["run", "--place", "layers:5..5=cpu", "Hello"], "layers:5..5"),
        (&["run", "--place", "layers:0..4/0=cpu", "Hello"], "layers:0..4/0"),
        (&["run", "-t", "0", "Hello"], "positive number of threads"),
        (&["quantize", "a.gguf", "b.gguf", "Q8_0", "-t", "0"], "positive number of threads"),
        (&["run", "-ctk", "q1", "Hello"], "q1"),
        (&["logits", "--tokens", "1,99999999"], "99999999"),
    ];
    for (arguments, expected) in cases {
        let said = orlop(arguments).refusal(2);
        assert!(said.contains(expected), "{said}");
    }
}
