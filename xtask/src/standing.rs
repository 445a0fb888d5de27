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

/// The names that a crate's root exports: modules, and what `pub use` lists.
fn root_names(source: &str) -> Vec<String> {
    let code: String = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let items = code.split(';').filter_map(|item| item.rsplit_once("pub use ").map(|(_, path)| path));
    let listed = items.flat_map(|path| {
        let names = path.split_once('{').map_or(path, |(_, names)| names.trim_end_matches('}'));
        names.split(',').map(|name| name.rsplit([':', ' ']).find(|word| !word.is_empty()).unwrap_or_default())
    });
    listed.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn names_of_a_root_are_those_of_its_lists() {
    let source = "//! pub use no;\npub mod devices;\npub use a::{B, C,\n    D,\n};\n/// Doc.\npub use a::E;\npub use a as f;\n";
    assert_eq!(root_names(source), ["B", "C", "D", "E", "f"]);
}

/// The facade is small: its names, those of the lower crates aside, are for three kinds of users.
#[test]
fn the_facade_has_at_most_30_root_names() {
    let source = fs::read_to_string(workspace().join("crates/orlop/src/lib.rs")).expect("the facade");
    let crates = |name: &String| workspace().join("crates").join(name).exists();
    let (modules, names): (Vec<_>, Vec<_>) = root_names(&source).into_iter().partition(crates);
    assert!(modules.len() > 10 && names.len() > 20, "{modules:?}, {names:?}");
    assert!(names.len() <= 30, "{} root names: {names:?}", names.len());
}

/// How often words stand in a text, in names too.
fn count(text: &str, words: &[String]) -> usize {
    let text = text.to_lowercase();
    words.iter().map(|word| text.matches(word.as_str()).count()).sum()
}

/// Vague subjects and amounts: what does it, and how many, is said by name.
#[test]
fn vague_words_are_rare() {
    let words = [["no", "body"], ["some", "body"], ["who", "ever"], ["lea", "fs"], ["so ", "many"]];
    let words = words.map(|parts| parts.concat());
    assert_eq!(count("So Many, and for_no\u{62}ody", &words), 2);
    let mut sources = Vec::new();
    for folder in ["crates", "docs", "xtask", "examples"] {
        ["rs", "cu", "cuh", "md", "toml", "py"]
            .iter()
            .for_each(|kind| files(&workspace().join(folder), kind, &mut sources));
    }
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    sources.extend(pages.map(|name| workspace().join(name)));
    assert!(sources.len() > 500, "only {} files were found", sources.len());
    let counts =
        sources.iter().map(|path| (count(&fs::read_to_string(path).expect("a source"), &words), path));
    let found: Vec<_> = counts.filter(|(count, _)| *count > 0).collect();
    let total: usize = found.iter().map(|(count, _)| count).sum();
    assert!(total <= 40, "{total} uses: {found:#?}");
}
