//! Documents as lists of lines and fenced blocks.

use std::path::{Path, PathBuf};

/// A Markdown file of the repository.
pub(crate) struct Document {
    /// From the repository's root, with `/` between folders.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The line that opens it, from 1.
    pub(crate) line: usize,
    pub(crate) language: &'a str,
    /// What stands behind the language.
    pub(crate) marks: Vec<&'a str>,
    pub(crate) lines: Vec<&'a str>,
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every document: those in the root, in `docs/src`, and beside the sources of crates.
pub(crate) fn documents() -> Vec<Document> {
    let root = root();
    let mut paths: Vec<PathBuf> = root.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    for folder in ["docs/src", "crates", "xtask"] {
        collect(&root.join(folder), &mut paths);
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let documents = paths.iter().map(|path| Document {
        name: path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/"),
        text: std::fs::read_to_string(path).unwrap(),
    });
    documents.collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, paths),
            false => paths.push(path),
        }
    }
}

impl Document {
    /// Whether all that it prints must be what a test printed.
    pub(crate) fn is_guide(&self) -> bool {
        self.name == "README.md" || self.name.starts_with("docs/src/guide/")
    }

    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks: Vec<Block<'_>> = Vec::new();
        let mut open = false;
        for (number, line) in self.text.lines().enumerate() {
            match line.strip_prefix("```") {
                Some(_) if open => open = false,
                Some(information) => {
                    let mut words = information.split([' ', ',']).filter(|word| !word.is_empty());
                    let language = words.next().unwrap_or("");
                    blocks.push(Block {
                        line: number + 1,
                        language,
                        marks: words.collect(),
                        lines: Vec::new(),
                    });
                    open = true;
                }
                None if open => blocks.last_mut().unwrap().lines.push(line),
                None => {}
            }
        }
        assert!(!open, "{}: the last block has no end", self.name);
        blocks
    }

    /// The lines outside of blocks, numbered from 1.
    pub(crate) fn prose(&self) -> Vec<(usize, &str)> {
        let mut open = false;
        let numbered = self.text.lines().enumerate().filter(|(_, line)| {
            let is_fence = line.starts_with("```");
            open ^= is_fence;
            !open && !is_fence
        });
        numbered.map(|(number, line)| (number + 1, line)).collect()
    }
}

#[test]
fn blocks_are_told_from_prose() {
    let text = "a\n```sh gpu\n$ b\n```\nc\n".to_owned();
    let document = Document { name: "x.md".to_owned(), text };
    let block = Block { line: 2, language: "sh", marks: vec!["gpu"], lines: vec!["$ b"] };
    assert_eq!(document.blocks(), [block]);
    assert_eq!(document.prose(), [(1, "a"), (5, "c")]);
}
