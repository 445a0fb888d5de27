//! Links between documents, and the book's table of contents.

use std::collections::BTreeSet;

use crate::markdown::{Document, documents, root};

/// The targets of the links and images of a line, and whatever references define at its beginning.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut rest = line;
    while let Some((_, behind)) = rest.split_once("](") {
        let Some((target, after)) = behind.split_once(')') else { break };
        targets.push(target);
        rest = after;
    }
    targets
}

/// A heading as the part of a link behind `#`, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(document: &Document) -> BTreeSet<String> {
    let headings = document.prose().into_iter().filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| anchor(heading))
    });
    headings.collect()
}

#[test]
fn every_relative_link_has_a_target() {
    let root = root();
    let documents = documents();
    let mut broken = Vec::new();
    for document in &documents {
        let folder = root.join(&document.name).parent().unwrap().to_owned();
        for (line, text) in document.prose() {
            for target in targets(text) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
                let file = if path.is_empty() { root.join(&document.name) } else { folder.join(path) };
                let Ok(file) = file.canonicalize() else {
                    broken.push(format!("{}:{line}: {target}", document.name));
                    continue;
                };
                let name = file.strip_prefix(&root).ok().and_then(|path| path.to_str());
                // A link that leaves the book is dead on its pages.
                if document.name.starts_with("docs/src/")
                    && !name.is_some_and(|name| name.starts_with("docs/src/"))
                {
                    broken.push(format!(
                        "{}:{line}: {target} leaves the book; name the file instead",
                        document.name
                    ));
                }
                let page = documents.iter().find(|document| Some(document.name.as_str()) == name);
                if !fragment.is_empty() && page.is_none_or(|page| !anchors(page).contains(fragment)) {
                    broken.push(format!("{}:{line}: {target} has no such heading", document.name));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_table_of_contents_lists_every_page_once() {
    let documents = documents();
    let pages = || documents.iter().filter_map(|document| document.name.strip_prefix("docs/src/"));
    let summary = documents.iter().find(|document| document.name == "docs/src/SUMMARY.md").unwrap();
    let mut listed: Vec<&str> = summary.prose().into_iter().flat_map(|(_, line)| targets(line)).collect();
    listed.sort_unstable();
    let mut there: Vec<&str> = pages().filter(|page| *page != "SUMMARY.md").collect();
    there.sort_unstable();
    assert_eq!(listed, there);
}

#[test]
fn links_and_headings_are_read_as_their_renderers_do() {
    assert_eq!(targets("[a](b.md), ![c](d.svg) and [e](f#g)"), ["b.md", "d.svg", "f#g"]);
    assert_eq!(anchor(" Add an op: the files"), "add-an-op-the-files");
}
