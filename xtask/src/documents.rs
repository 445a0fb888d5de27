//! Checks the cargo commands in documents: tasks, packages, features and tests exist. `crates/cli/tests/documents` checks
//! everything else.

use std::path::{Path, PathBuf};

use clap::Parser;

use crate::Task;
use crate::cargo::workspace;

/// Markdown files in the root, in `docs` and beside sources.
fn documents() -> Vec<PathBuf> {
    fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
        for path in folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() && depth > 0 {
                collect(&path, depth - 1, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(&workspace(), 0, &mut found);
    for folder in ["docs", "crates", "xtask"] {
        collect(&workspace().join(folder), 9, &mut found);
    }
    found
}

/// The arguments of `cargo` in code blocks and between backticks, without comments.
fn commands(page: &str) -> Vec<Vec<String>> {
    let code = page.lines().flat_map(|line| line.split('`'));
    let code = code.filter_map(|code| {
        let code = code.strip_prefix("$ ").unwrap_or(code).trim_start_matches("UPDATE_GOLDEN=1 ");
        code.strip_prefix("cargo ")
    });
    let words = |code: &str| {
        code.split_whitespace().take_while(|word| !word.starts_with('#')).map(str::to_owned).collect()
    };
    code.map(words).collect()
}

#[test]
fn documents_name_commands_of_cargo_that_exist() {
    let mut count = 0;
    for path in documents() {
        let page = std::fs::read_to_string(&path).expect("a document");
        for words in commands(&page) {
            let shown = format!("{}: cargo {}", path.display(), words.join(" "));
            count += 1;
            if words.first().is_some_and(|word| word == "xtask") && words.len() > 1 && words[1] != "COMMAND" {
                let task = Task::try_parse_from(&words);
                assert!(
                    task.is_ok(),
                    "{shown}: {}",
                    task.err().map(|error| error.to_string()).unwrap_or_default()
                );
            }
            for pair in words.windows(2) {
                let exists = match pair[0].as_str() {
                    "-p" | "--package" => {
                        let folder = pair[1].strip_prefix("orlop-").unwrap_or(&pair[1]);
                        workspace().join("crates").join(folder).join("Cargo.toml").exists()
                    }
                    "--features" => ["cuda", "wgpu"].contains(&pair[1].as_str()),
                    "--path" => workspace().join(&pair[1]).exists(),
                    _ => true,
                };
                assert!(exists, "{shown}: there is no {}", pair[1]);
            }
        }
    }
    assert!(count > 30, "only {count} commands are in the documents");
}
