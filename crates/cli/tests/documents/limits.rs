//! Documents that must stay short.

use crate::markdown::{documents, root};

#[test]
fn the_first_pages_are_short() {
    for (name, lines, words) in [("README.md", 150, 900), ("ARCHITECTURE.md", 120, usize::MAX)] {
        let document = documents().into_iter().find(|document| document.name == name).unwrap();
        let counted = (document.text.lines().count(), document.text.split_whitespace().count());
        assert!(counted.0 <= lines, "{name} has {} lines, of at most {lines}", counted.0);
        assert!(counted.1 <= words, "{name} has {} words, of at most {words}", counted.1);
    }
}

#[test]
fn the_readme_multiplies_a_matrix_in_ten_statements() {
    let document = documents().into_iter().find(|document| document.name == "README.md").unwrap();
    let blocks = document.blocks();
    let program = blocks.iter().find(|block| block.language == "rust").unwrap();
    let main = program.lines.iter().skip_while(|line| !line.starts_with("fn main"));
    let code = main.map(|line| line.split("//").next().unwrap_or("").trim_end());
    let statements = code.filter(|line| line.ends_with(';')).count();
    assert!((2..=10).contains(&statements), "it takes {statements} statements");
}

#[test]
fn the_front_page_of_the_crates_documentation_is_short() {
    let source = std::fs::read_to_string(root().join("crates/orlop/src/lib.rs")).unwrap();
    let lines = source.lines().filter(|line| line.starts_with("//!")).count();
    assert!(lines <= 80, "it has {lines} lines, of at most 80");
}
