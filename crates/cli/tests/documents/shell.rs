//! Commands that documents print without running them.

use crate::markdown::documents;
use crate::with_model::orlop;

/// The words of a command, quotes and comments taken away.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn commands_that_are_not_run_have_arguments_that_exist() {
    for document in documents() {
        for block in document.blocks().iter().filter(|block| block.language == "sh") {
            for line in &block.lines {
                let words = words(line);
                let Some((program, arguments)) = words.split_first() else { continue };
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                let arguments = match program.as_str() {
                    "orlop" => &arguments[..],
                    // What follows `--` is for the command.
                    "cargo" if arguments.starts_with(&["run", "--release", "--"]) => &arguments[3..],
                    _ => continue,
                };
                // Help comes last, so everything in front of it has been read.
                let run = orlop(&[arguments, &["--help"]].concat());
                assert_eq!(run.status, Some(0), "{}:{}: {line}: {}", document.name, block.line, run.stderr);
            }
        }
    }
}

/// The README and the guide print nothing that is not run: other blocks hold commands that build, or need a GPU or a
/// network, and sources in other languages.
#[test]
fn the_guide_prints_nothing_that_no_test_runs() {
    for document in documents().iter().filter(|document| document.is_guide()) {
        for block in document.blocks() {
            let place = format!("{}:{}", document.name, block.line);
            match block.language {
                // The tests of the Python package run its blocks.
                "console" | "c" | "python" => {}
                "rust" => assert!(block.marks.is_empty(), "{place}: not run"),
                "sh" if block.marks == ["gpu"] || block.marks == ["network"] => {}
                "sh" => {
                    let needless = block.lines.iter().find(|line| line.starts_with("orlop "));
                    assert_eq!(needless, None, "{place}: `console` runs it");
                }
                other => panic!("{place}: blocks of `{other}` are not checked"),
            }
        }
    }
}

#[test]
fn quotes_and_comments_are_read_as_a_shell_does() {
    assert_eq!(words("orlop run  \"a b\" 'c' # d"), ["orlop", "run", "a b", "c"]);
}
