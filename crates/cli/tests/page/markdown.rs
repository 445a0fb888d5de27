//! Markdown as the page of `orlop serve` reads it.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::served::Served;

/// The blocks of a text as the page has them, written shorter: a paragraph as its spans, others as `{kind: …}`.
const SHORT: &str = "
    const span = (s) => typeof s === 'string' ? s : s.kind === 'break' ? '⏎' : s.kind === 'code' ? {code: s.text}
        : s.kind === 'link' ? {link: s.href, of: s.spans.map(span)} : {[s.kind]: s.spans.map(span)};
    const item = ({checked, blocks}) => checked === null ? blocks.map(block) : [checked, ...blocks.map(block)];
    const row = (cells) => cells.map((cell) => cell.map(span));
    const forms = {
        paragraph: (b) => b.spans.map(span),
        heading: (b) => ({['h' + b.level]: b.spans.map(span)}),
        rule: () => 'rule',
        quote: (b) => ({quote: b.blocks.map(block)}),
        code: (b) => ({code: b.text, in: b.language}),
        table: (b) => ({align: b.align.join(' '), rows: [b.head, ...b.rows].map(row)}),
        list: (b) => ({[b.ordered ? 'ol' + b.start : 'ul']: b.items.map(item)}),
    };
    const block = (b) => forms[b.kind](b);";

#[test]
fn texts_are_read_as_markdown() {
    let served = Served::start(&[]);
    let mut browser = Browser::start();
    browser.visit(served.address);
    let mut check = |text: &str, expected: Value| {
        let read = format!(
            "import('/page/markdown.js').then((m) => {{ {SHORT} return m.blocks({}).map(block); }})",
            json!(text)
        );
        assert_eq!(browser.run(&read), expected, "{text:?}");
    };
    // Paragraphs, headings, rules.
    check("", json!([]));
    check("a\nb\n\nc", json!([["a", "⏎", "b"], ["c"]]));
    check(
        "# a\n### b *c* ###\n#d\n####### e",
        json!([{"h1": ["a"]}, {"h3": ["b ", {"emphasis": ["c"]}]}, ["#d", "⏎", "####### e"]]),
    );
    check("a\n***\n- - -", json!([["a"], "rule", "rule"]));
    // Emphasis.
    check(
        "*a* **b** ***c*** ~~d~~ ~e~",
        json!([[
            {"emphasis": ["a"]}, " ", {"strong": ["b"]}, " ", {"emphasis": [{"strong": ["c"]}]}, " ",
            {"deleted": ["d"]}, " ~e~"
        ]]),
    );
    check(
        "**a *b* c** 2 * 3 * 4 snake_case_name",
        json!([[
            {"strong": ["a ", {"emphasis": ["b"]}, " c"]}, " 2 * 3 * 4 snake_case_name"
        ]]),
    );
    check("**open *and _never closed", json!([["**open *and _never closed"]]));
    check(r"\*a\* \q", json!([[r"*a* \q"]]));
    // Code.
    check("`a*b*` ``c`d`` ` e", json!([[{"code": "a*b*"}, " ", {"code": "c`d"}, " ` e"]]));
    check("```rust\nlet a = 1;\n\n  b\n```\nc", json!([{"code": "let a = 1;\n\n  b", "in": "rust"}, ["c"]]));
    check("~~~\n```\n~~~", json!([{"code": "```", "in": ""}]));
    check("````\n```\nstill\n````", json!([{"code": "```\nstill", "in": ""}]));
    check("```js\nhalf a bl", json!([{"code": "half a bl", "in": "js"}]));
    check("```make\na:\n\tb\n```", json!([{"code": "a:\n\tb", "in": "make"}]));
    // Lists.
    check("- a\n\t- b\n", json!([{"ul": [[["a"], {"ul": [[["b"]]]}]]}]));
    check("- a\n- b\n  c\n+ d", json!([{"ul": [[["a"]], [["b", "⏎", "c"]]]}, {"ul": [[["d"]]]}]));
    check("3. a\n4. b\n   - c\n   - d", json!([{"ol3": [[["a"]], [["b"], {"ul": [[["c"]], [["d"]]]}]]}]));
    check(
        "1. a\n  - b\n    - c\n2. d",
        json!([{"ol1": [[["a"], {"ul": [[["b"], {"ul": [[["c"]]]}]]}], [["d"]]]}]),
    );
    check("- [x] a\n- [ ] b", json!([{"ul": [[true, ["a"]], [false, ["b"]]]}]));
    check("  - a\n  - b\n\n    c", json!([{"ul": [[["a"]], [["b"], ["c"]]]}]));
    check(
        "1. a\n```\nb\n```\n2. c",
        json!([{"ol1": [[["a"]]]}, {"code": "b", "in": ""}, {"ol2": [[["c"]]]}]),
    );
    check("born in\n1986. A year", json!([["born in", "⏎", "1986. A year"]]));
    // Quotes and tables.
    check("> a\n> > b\n\nc", json!([{"quote": [["a"], {"quote": [["b"]]}]}, ["c"]]));
    check(
        "| a | b |\n|:-:|--:|\n| `x|y` | *1* |\n| only |\nend",
        json!([
            {
                "align": "center right",
                "rows": [[["a"], ["b"]], [[{"code": "x|y"}], [{"emphasis": ["1"]}]], [["only"], []]],
            },
            ["end"]
        ]),
    );
    check("a | b\nc | d", json!([["a | b", "⏎", "c | d"]]));
    // Links lead to web pages only; pictures are links.
    check(
        "[a *b*](https://c.d/e_(f) \"g\") <http://h.i>",
        json!([[
            {"link": "https://c.d/e_(f)", "of": ["a ", {"emphasis": ["b"]}]}, " ",
            {"link": "http://h.i/", "of": ["http://h.i"]}
        ]]),
    );
    check(
        "see https://a.b/c(d)?e=1. (https://f.g)",
        json!([[
            "see ", {"link": "https://a.b/c(d)?e=1", "of": ["https://a.b/c(d)?e=1"]}, ". (",
            {"link": "https://f.g/", "of": ["https://f.g"]}, ")"
        ]]),
    );
    check("![a](https://b.c/d.png)", json!([[{"link": "https://b.c/d.png", "of": ["a"]}]]));
    for address in [
        "javascript:alert(1)",
        "JaVaScRiPt:a",
        "data:text/html,a",
        "/relative",
        "file:///etc/passwd",
        "vbscript:a",
    ] {
        let text = format!("[a]({address})");
        check(&text, json!([[text]]));
    }
    // HTML is text.
    check("<b>a</b> <img src=x onerror=y>", json!([["<b>a</b> <img src=x onerror=y>"]]));
    check("<script>\nalert(1)\n</script>", json!([["<script>", "⏎", "alert(1)", "⏎", "</script>"]]));
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn long_texts_of_marks_are_read_to_their_end() {
    let served = Served::start(&[]);
    let mut browser = Browser::start();
    browser.visit(served.address);
    for mark in [
        "*",
        "_",
        "**a ",
        "*a _b ",
        "`",
        "[",
        "![](",
        "[a](",
        "<http://",
        "> ",
        "- ",
        "  - a\n",
        "|",
        "| a\n|-\n",
        "~~a",
        "# ",
        "\\",
        "```\n",
        "1. ",
        "https://a.b/(",
        "&",
        "***a** ",
    ] {
        let length = browser.number(&format!(
            "import('/page/markdown.js').then((m) => JSON.stringify(m.blocks({}.repeat(20000))).length)",
            json!(mark)
        ));
        assert!(length >= 2.0, "{mark:?}");
    }
}
