//! Pages of the book that are written by tests: that of all options, and the table of architectures.

use orlop::llm::Architecture;

use crate::markdown::root;
use crate::with_model::orlop;

const PAGE: &str = "docs/src/reference/cli.md";

const HEAD: &str = "# Command line

`orlop COMMAND --help` prints these texts. A test writes this page from them
(`UPDATE_GOLDEN=1 cargo test -p orlop-cli --test documents command_line`). The short aliases
`-ngl`, `-ub`, `-ctk` and `-ctv` take a single dash, as in llama.cpp.
";

fn help(arguments: &[&str]) -> String {
    orlop(&[arguments, &["--help"]].concat()).result()
}

/// The names behind `Commands:`.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).map(|line| line.split_whitespace().next().unwrap());
    names.filter(|name| *name != "help").collect()
}

#[test]
fn the_page_of_the_command_line_is_what_help_prints() {
    let all = help(&[]);
    let mut page = format!("{HEAD}\n## orlop\n\n```text\n{}\n```\n", all.trim_end());
    for command in commands(&all) {
        let text = help(&[command]);
        page += &format!("\n## orlop {command}\n\n```text\n{}\n```\n", text.trim_end());
    }
    compare(PAGE, |_| page);
}

const TABLE: &str = "| architecture | models |\n|---|---|\n";

#[test]
fn the_table_of_models_is_the_list_of_architectures() {
    let rows = Architecture::ALL.iter().map(|known| format!("| {known} | {} |\n", known.models()));
    let table: String = std::iter::once(TABLE.to_owned()).chain(rows).collect();
    compare("docs/src/reference/models.md", |page| {
        let (head, tail) = page.split_once(TABLE).unwrap();
        let tail = tail.split_once("\n\n").unwrap().1;
        format!("{head}{table}\n{tail}")
    });
}

#[test]
fn the_readme_counts_the_architectures() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let counted = format!("[{} architectures](docs/src/reference/models.md)", Architecture::ALL.len());
    assert!(readme.contains(&counted), "it does not say `{counted}`");
}

/// Compares a page with what it should be, or writes it.
fn compare(page: &str, expected: impl FnOnce(&str) -> String) {
    let path = root().join(page);
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = expected(&written);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(written == expected, "{page} is out of date; run this test with UPDATE_GOLDEN=1");
}
