use std::path::Path;
use std::sync::Mutex;

use crate::rerankers::reranker;
use crate::support::Folder;
use crate::terminal::Terminal;
use crate::with_model::{orlop, program};

fn help(arguments: &[&str]) -> String {
    orlop(&[arguments, &["--help"]].concat()).result()
}

/// The commands listed by `orlop --help`.
fn commands() -> Vec<String> {
    let help = help(&[]);
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.take_while(|line| !line.is_empty()).map(|line| line.trim_start().to_owned()).collect()
}

#[test]
fn every_example_runs_as_printed() {
    let commands = commands();
    assert!(commands.len() >= 12, "{commands:?}");
    let pages = commands.iter().map(|command| help(&[command])).chain([help(&[])]);
    let (pages, written) = (Mutex::new(pages.collect::<Vec<_>>().into_iter()), Mutex::new(Vec::new()));
    let next = || pages.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(page) = next() {
                    let files = run_examples(&page);
                    written.lock().unwrap().extend(files);
                }
            });
        }
    });
    let written = written.into_inner().unwrap();
    for file in
        ["random.gguf", "small.gguf", "orlop.1", "orlop-run.1", "orlop-plan.1", "orlop.bash", "_orlop"]
    {
        assert!(written.contains(&file.to_owned()), "{file}: {written:?}");
    }
}

/// Runs the examples of a page in a folder of their own, and returns the files that they write.
fn run_examples(page: &str) -> Vec<String> {
    let folder = Folder::new();
    let home = folder.path(".");
    let found = Path::new(env!("CARGO_BIN_EXE_orlop")).parent().unwrap().display().to_string();
    let path = format!("{found}:{}", std::env::var("PATH").unwrap());
    reranker(&folder.path("reranker.gguf"));
    let examples = examples(page);
    assert!(!examples.is_empty(), "there are examples: {page}");
    for line in examples {
        let mut shell = program("sh");
        let serves = line.starts_with("orlop serve-rpc");
        let line = if serves { format!("exec {line}") } else { line };
        shell.args(["-c", &line]).current_dir(&home).env("PATH", &path).env("XDG_STATE_HOME", &home);
        // No network is needed to see that the arguments are good.
        let pulls = line.contains("orlop pull");
        shell.env("HF_HUB_OFFLINE", "1").env("HF_HOME", &home);
        let mut terminal = Terminal::start(&mut shell);
        if line.starts_with("orlop run") && !line.contains('"') {
            terminal.expect("Ctrl-D quits\n> ");
            terminal.keys("\x04");
        }
        if serves {
            terminal.expect("serving cpu on ");
            terminal.keys("\x03");
        }
        let (status, said) = terminal.end();
        if pulls {
            assert!(status != Some(0) && said.contains("HF_HUB_OFFLINE"), "{line}: {said}");
            continue;
        }
        assert_eq!(status, Some(0), "{line}: {said}");
    }
    folder.files()
}

#[test]
fn completions_know_the_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = orlop(&["completions", shell]).result();
        for expected in ["perplexity", "repeat-penalty", "completions"] {
            assert!(script.contains(expected), "{shell}: {expected}");
        }
    }
    assert!(orlop(&["completions", "abacus"]).refusal(2).contains("abacus"));
}

#[test]
fn manual_pages_are_printed_and_written() {
    assert!(orlop(&["man"]).result().contains(".SH SUBCOMMANDS"));
    let page = orlop(&["man", "run"]).result();
    assert!(page.contains("orlop\\-run") && page.contains("repeat\\-penalty"), "{page}");
    assert!(orlop(&["man", "dance"]).refusal(2).contains("dance"));
    assert!(orlop(&["man", "--output", "/nowhere/at/all"]).refusal(2).contains("/nowhere/at/all"));
}

#[test]
fn colours_and_bars_are_for_terminals_alone() {
    let run = orlop(&["run", "--verbose", "--temp", "0", "-n", "4", "-c", "64", "Hello"]);
    assert!(!run.stderr.contains('\u{1b}') && !run.stdout.contains('\u{1b}'), "{run:?}");
    for expected in ["threads", "repacked", "context: 64 tokens", "tokens/s"] {
        assert!(run.stderr.contains(expected), "{expected}: {run:?}");
    }
    assert!(!help(&["run"]).contains('\u{1b}'));
}
