//! The page of the book that lists all options.

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
    let path = root().join(PAGE);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "{PAGE} is out of date; run this test with UPDATE_GOLDEN=1");
}
