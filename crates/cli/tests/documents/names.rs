//! Names of the library that documents use.

use std::collections::HashSet;
use std::path::Path;

use crate::markdown::{documents, root};

/// The words of all Rust sources below a folder.
fn collect(folder: &Path, words: &mut HashSet<String>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, words);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            words.extend(text.split(|c: char| !is_letter(c)).map(str::to_owned));
        }
    }
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The names in a path such as `Session::run`, what is called with it left out; none for other code.
fn names(code: &str) -> Vec<&str> {
    let path = code.split(['(', ' ', '<']).next().unwrap_or("");
    let names: Vec<&str> = path.split("::").collect();
    let is_path = names.len() > 1 && names.iter().all(|name| !name.is_empty() && name.chars().all(is_letter));
    if is_path { names } else { Vec::new() }
}

#[test]
fn every_name_that_a_document_uses_exists() {
    let mut words = HashSet::new();
    collect(&root().join("crates"), &mut words);
    let mut missing = Vec::new();
    for document in documents() {
        for (line, text) in document.prose() {
            for code in text.split('`').skip(1).step_by(2) {
                // Tests are named with their crate, which is no name of a source.
                let code = code
                    .split_once(':')
                    .filter(|(_, rest)| !rest.starts_with(':'))
                    .map_or(code, |(_, path)| path);
                if names(code).iter().any(|name| !words.contains(*name)) {
                    missing.push(format!("{}:{line}: {code}", document.name));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn paths_are_told_from_other_code() {
    assert_eq!(names("Device::buffer_types(role)[0]"), ["Device", "buffer_types"]);
    assert_eq!(names("cargo xtask"), [""; 0]);
}

/// Whether a row of a mapping names a function, in full or by its end: `ggml_gallocr_new`, `_new_n`.
fn maps(row: &str, function: &str) -> bool {
    let codes: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
    let first = codes.first().copied().unwrap_or("");
    codes.iter().any(|code| {
        *code == function
            || code.starts_with('_')
                && function.strip_suffix(code).is_some_and(|stem| first.starts_with(stem))
    })
}

#[test]
fn every_function_of_ggml_in_an_excerpt_is_in_the_mapping() {
    let page = documents().into_iter().find(|document| document.name.ends_with("from-ggml.md")).unwrap();
    let rows: Vec<&str> = page.text.lines().filter(|line| line.starts_with('|')).collect();
    let mut count = 0;
    for block in page.blocks().iter().filter(|block| block.language == "c") {
        let text = block.lines.join("\n");
        let calls = text.split('(').filter_map(|before| before.rsplit(|c: char| !is_letter(c)).next());
        for function in calls.filter(|name| name.starts_with("ggml_")) {
            assert!(rows.iter().any(|row| maps(row, function)), "{function} is in no table");
            count += 1;
        }
    }
    assert!(count >= 15, "{count}");
}

#[test]
fn ends_of_names_stand_for_names_of_the_same_stem() {
    let row = "| `ggml_gallocr_new`, `_new_n` | … |";
    assert!(maps(row, "ggml_gallocr_new") && maps(row, "ggml_gallocr_new_n"));
    assert!(!maps(row, "ggml_backend_new_n") && !maps(row, "ggml_gallocr_free"));
}
