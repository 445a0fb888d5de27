//! Rules that hold for all sources, checked as tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo::workspace;

/// Files of a kind in a folder, at any depth.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for path in folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
}

/// The folders of all crates.
fn crates() -> Vec<PathBuf> {
    let folders = workspace().join("crates").read_dir().expect("the crates").flatten();
    folders.map(|entry| entry.path()).collect()
}

/// The name of the public type or trait that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let mut words =
        line.trim_start().strip_prefix("pub ")?.split_whitespace().skip_while(|word| *word == "unsafe");
    let declares = ["struct", "enum", "trait", "union", "type"].contains(&words.next()?);
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    // A macro's `pub struct $name` has none.
    (declares && !name.is_empty()).then_some(name)
}

#[test]
fn public_types_are_told_from_other_lines() {
    assert_eq!(public_type("pub struct Plan<T> {"), Some("Plan"));
    assert_eq!(public_type("pub unsafe trait Buffer: Send {"), Some("Buffer"));
    assert_eq!(public_type("    pub enum A{"), Some("A"));
    assert_eq!(public_type("pub(crate) struct Plan {"), None);
    assert_eq!(public_type("pub fn plan() {"), None);
    assert_eq!(public_type("struct Plan;"), None);
}

/// One name, one meaning: only `Error` is in several crates.
#[test]
fn no_two_public_types_share_a_name() {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for folder in crates() {
        let mut sources = Vec::new();
        files(&folder.join("src"), "rs", &mut sources);
        for path in sources {
            let text = fs::read_to_string(&path).expect("a source");
            for name in text.lines().filter_map(public_type).filter(|name| *name != "Error") {
                places.entry(name.to_owned()).or_default().push(path.clone());
            }
        }
    }
    assert!(places.len() > 100, "only {} types were found", places.len());
    let shared: Vec<_> = places.iter().filter(|(_, places)| places.len() > 1).collect();
    assert!(shared.is_empty(), "{shared:#?}");
}

/// Libraries and programs do not unwrap; tests and benchmarks may.
#[test]
fn every_crate_has_the_lint_against_unwrap() {
    for folder in crates().into_iter().chain([workspace().join("xtask")]) {
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root));
        for root in roots.iter().filter(|root| root.exists()) {
            let text = fs::read_to_string(root).expect("a crate's root");
            assert!(text.contains("#![warn(clippy::unwrap_used)]"), "{}", root.display());
        }
    }
}
