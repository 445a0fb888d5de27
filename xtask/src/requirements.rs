//! Checks that the tests named in docs/src/reference/requirements.md exist.

use std::path::{Path, PathBuf};

use crate::cargo::workspace;

/// A test as written on the page: `crate:module::name`; the default crate is `alloc`.
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    package: &'a str,
    modules: Vec<&'a str>,
    name: &'a str,
}

/// All tests named on a page, between backticks.
fn named(page: &str) -> Vec<Named<'_>> {
    page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter_map(parse).collect()
}

fn parse(text: &str) -> Option<Named<'_>> {
    let is_word = |word: &str| {
        let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(rest)
    };
    let (package, path) = match text.split_once(':') {
        Some((package, path)) if !path.starts_with(':') => (package, path),
        _ => ("alloc", text),
    };
    let mut modules: Vec<&str> = path.split("::").collect();
    let name = modules.pop()?;
    let words = !modules.is_empty() && modules.iter().chain([&package, &name]).all(|word| is_word(word));
    words.then_some(Named { package, modules, name })
}

impl Named<'_> {
    /// Whether a source file of these modules has such a function.
    fn exists(&self) -> bool {
        let root = workspace().join("crates").join(self.package);
        let mut sources = Vec::new();
        for folder in ["src", "tests"] {
            collect(&root.join(folder), &mut sources);
        }
        let function = format!("fn {}(", self.name);
        sources.iter().any(|path| {
            let place = path.strip_prefix(&root).unwrap_or(path).with_extension("");
            let parts: Vec<_> = place.iter().map(|part| part.to_string_lossy()).collect();
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let inside = |module: &&str| {
                parts.iter().any(|part| part == module) || text.contains(&format!("mod {module} {{"))
            };
            text.contains(&function) && self.modules.iter().all(inside)
        })
    }
}

/// The Rust sources in a folder, if it exists.
fn collect(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

#[test]
fn tests_are_told_from_other_code() {
    let page =
        "| AL-1 | `golden::gt_1`, by `TensorSet::buffers` or `Drop` | `plan:chunk::tests::a_b` | cpu:a::b |";
    let gt_1 = Named { package: "alloc", modules: vec!["golden"], name: "gt_1" };
    let a_b = Named { package: "plan", modules: vec!["chunk", "tests"], name: "a_b" };
    assert_eq!(named(page), [gt_1, a_b]);
    assert!(!Named { package: "plan", modules: vec!["chunk"], name: "no_such_test" }.exists());
}

#[test]
fn every_test_that_the_requirements_name_exists() {
    let page =
        std::fs::read_to_string(workspace().join("docs/src/reference/requirements.md")).expect("the page");
    let tests = named(&page);
    assert!(tests.len() > 100, "only {} tests are named", tests.len());
    let missing: Vec<_> = tests.iter().filter(|test| !test.exists()).collect();
    assert!(missing.is_empty(), "not there: {missing:#?}");
}
