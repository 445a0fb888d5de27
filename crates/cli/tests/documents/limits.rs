//! Documents that must stay short.

use crate::markdown::documents;

#[test]
fn the_first_pages_are_short() {
    for (name, lines, words) in [("README.md", 150, 900), ("ARCHITECTURE.md", 120, usize::MAX)] {
        let document = documents().into_iter().find(|document| document.name == name).unwrap();
        let counted = (document.text.lines().count(), document.text.split_whitespace().count());
        assert!(counted.0 <= lines, "{name} has {} lines, of at most {lines}", counted.0);
        assert!(counted.1 <= words, "{name} has {} words, of at most {words}", counted.1);
    }
}
