//! Files that documents name.

use crate::markdown::{documents, root};

/// Folders at the root whose files are named in full.
const FOLDERS: [&str; 5] = ["crates/", "docs/", "xtask/", "examples/", ".ci/"];

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expanded(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (names, after) = rest.split_once('}').unwrap();
    names.split(',').flat_map(|name| expanded(&format!("{before}{name}{after}"))).collect()
}

#[test]
fn every_file_that_a_document_names_exists() {
    let root = root();
    let mut missing = Vec::new();
    for document in documents() {
        for (line, text) in document.prose() {
            let code = text.split('`').skip(1).step_by(2);
            // Names with a placeholder, such as `<op>.rs`, stand for files that are to be written.
            let paths = code.filter(|code| FOLDERS.iter().any(|folder| code.starts_with(folder)));
            for path in paths.filter(|path| !path.contains(['<', '*', ' '])).flat_map(expanded) {
                if !root.join(&path).exists() {
                    missing.push(format!("{}:{line}: {path}", document.name));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The files of the table that leads from a model file to the first token.
fn files_to_the_first_token(page: &str) -> Vec<&str> {
    let (_, section) = page.split_once("## From model file to first token").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|code| code.ends_with(".rs")).collect()
}

#[test]
fn from_model_file_to_first_token_every_file_exists_and_none_appears_twice() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let files = files_to_the_first_token(&page);
    assert!(files.len() > 20, "{files:?}");
    let mut seen = std::collections::HashSet::new();
    for file in files {
        assert!(root().join(file).is_file(), "{file} does not exist");
        assert!(seen.insert(file), "{file} appears twice");
    }
}

/// The names in a table of `Cargo.toml`, those of the workspace's own crates left out.
fn dependencies(manifest: &str) -> Vec<&str> {
    let lines = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let entries = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    entries
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("orlop") && !name.starts_with(' '))
        .collect()
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let page = std::fs::read_to_string(root().join("docs/src/internals/dependencies.md")).unwrap();
    let names = dependencies(&manifest);
    assert!(names.len() > 20, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "without a row on the page of dependencies: {missing:?}");
}

#[test]
fn braces_stand_for_several_names() {
    assert_eq!(expanded("a/{b,c}.rs"), ["a/b.rs", "a/c.rs"]);
}
