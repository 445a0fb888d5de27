//! Commands that documents print with their output.

use std::path::Path;
use std::process::Stdio;

use crate::markdown::{Block, documents, root};
use crate::support::Folder;
use crate::with_model::program;

/// A command and what it prints.
#[derive(Debug, PartialEq, Eq)]
struct Example<'a> {
    command: &'a str,
    output: Vec<&'a str>,
}

fn examples<'a>(block: &Block<'a>) -> Vec<Example<'a>> {
    let mut examples: Vec<Example<'a>> = Vec::new();
    for line in &block.lines {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (Some(command), _) => examples.push(Example { command, output: Vec::new() }),
            (None, Some(example)) => example.output.push(line),
            (None, None) => panic!("line {}: output without a command", block.line),
        }
    }
    examples
}

/// Units of what differs from run to run.
const UNITS: [&str; 6] = ["s", "ms", "µs", "seconds", "tokens/s", "GB/s"];

/// What a measured machine is limited by.
const LIMITS: [&str; 2] = ["arithmetic", "memory"];

/// A line with times, speeds and what limits them as `#`, and single spaces.
fn normal(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let shown = words.iter().enumerate().map(|(i, word)| {
        let unit = words.get(i + 1).map_or("", |unit| unit.trim_end_matches([',', ')', ';', '.']));
        let (bracket, number) = word.strip_prefix('(').map_or(("", *word), |number| ("(", number));
        // A mean stands before its deviation.
        let measured = number.parse::<f64>().is_ok() && (UNITS.contains(&unit) || unit == "±");
        let limits = LIMITS.contains(word) && words[..i].ends_with(&["limited", "by", "the"]);
        if measured || limits { format!("{bracket}#") } else { (*word).to_owned() }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Whether `...` in the expected lines can stand for lines such that all are equal.
fn agrees(expected: &[String], found: &[String]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=found.len()).any(|skipped| agrees(rest, &found[skipped..]))
        }
        Some((first, rest)) => {
            found.split_first().is_some_and(|(line, others)| line == first && agrees(rest, others))
        }
    }
}

fn lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    lines.into_iter().map(normal).collect()
}

/// A folder with the repository's examples in it.
fn folder() -> Folder {
    let folder = Folder::new();
    let examples = root().join("examples");
    std::fs::create_dir(folder.path("examples")).unwrap();
    for entry in examples.read_dir().unwrap() {
        let from = entry.unwrap().path();
        if from.is_dir() {
            continue; // programs
        }
        let name = from.file_name().unwrap().to_str().unwrap();
        std::fs::copy(&from, folder.path(&format!("examples/{name}"))).unwrap();
    }
    folder
}

/// A command as a test runs it: the one that was built, instead of one that cargo would build.
fn built(command: &str) -> String {
    match command.strip_prefix("cargo run --release -- ") {
        Some(arguments) => format!("orlop {arguments}"),
        None => command.to_owned(),
    }
}

#[test]
fn documents_print_what_commands_print() {
    let found = Path::new(env!("CARGO_BIN_EXE_orlop")).parent().unwrap().display().to_string();
    let path = format!("{found}:{}", std::env::var("PATH").unwrap());
    let (mut count, mut wrong) = (0, Vec::new());
    for document in documents() {
        let folder = folder();
        for block in document.blocks().iter().filter(|block| block.language == "console") {
            for example in examples(block) {
                let mut shell = program("sh");
                shell.args(["-c", &format!("({}) 2>&1", built(example.command))]).env("PATH", &path);
                // Where it is missing, libraries of graphics say so.
                shell.env("XDG_RUNTIME_DIR", folder.path("."));
                let output = shell.current_dir(folder.path(".")).stdin(Stdio::null()).output().unwrap();
                let text = String::from_utf8(output.stdout).unwrap();
                let (expected, printed) = (lines(example.output), lines(text.lines()));
                count += 1;
                if !agrees(&expected, &printed) {
                    wrong.push(format!("{}:{}: {}\n{text}", document.name, block.line, example.command));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these print something else:\n\n{}", wrong.join("\n"));
    assert!(count >= 20, "only {count} commands are in the documents");
}

#[test]
fn what_differs_from_run_to_run_is_not_compared() {
    assert_eq!(
        normal("load  0.06 s, prompt 5 tokens in 0.1 s (83.2 tokens/s)"),
        "load # s, prompt 5 tokens in # s (# tokens/s)"
    );
    let text = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(agrees(&text(&["a", "...", "d"]), &text(&["a", "b", "c", "d"])));
    assert!(!agrees(&text(&["a", "...", "d"]), &text(&["a", "b", "c"])));
}
