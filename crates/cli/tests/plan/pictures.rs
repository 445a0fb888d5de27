use crate::support::{Folder, fixture, fixture_text, orlop};

const UNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/unet.jsonl.gz");

/// A graph without tensors.
const EMPTY: &str = r#"{"label":"none","buffers":[{"name":"CPU","alignment":32,"max_size":18446744073709551615,
    "same_as":0}],"tensors":[],"leafs":[],"nodes":[]}"#;

#[test]
fn svg_is_well_formed() {
    let folder = Folder::new();
    let path = folder.path("unet.svg");
    orlop(&["plan", UNET, "--svg", &path]).result();
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    let opened = svg.matches("<rect").count();
    assert_eq!(
        opened,
        svg.matches("/>").count() - svg.matches("<path").count() + svg.matches("</rect>").count()
    );
    assert!(svg.contains("sd15-unet/512x512/b1/fa1/im2col"), "the title");
    assert!(svg.contains("class=\"b\"") && svg.contains("class=\"m\""), "the bound and the peak");
    assert!(svg.contains("107.73 MiB") && svg.contains("peak at step 2107"));
    assert!(svg.len() < 200_000, "{} bytes are too many for a README", svg.len());
}

#[test]
fn equal_plans_give_equal_pages_and_drawings() {
    let folder = Folder::new();
    let [a, b, c, d] = ["a.html", "b.html", "c.svg", "d.svg"].map(|name| folder.path(name));
    for (html, svg) in [(&a, &c), (&b, &d)] {
        orlop(&["plan", UNET, "--html", html, "--svg", svg]).result();
    }
    let [a, b, c, d] = [a, b, c, d].map(|path| std::fs::read(path).unwrap());
    assert!(a == b && c == d);
}

#[test]
fn a_page_makes_no_requests() {
    let folder = Folder::new();
    let path = folder.path("page.html");
    orlop(&["plan", UNET, "--html", &path]).result();
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("default-src 'none'"));
    for word in ["http://", "https://", "src=\"", "import(", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn names_are_escaped() {
    let folder = Folder::new();
    let line = fixture_text("pipeline.jsonl").lines().next().unwrap().to_owned();
    let label = line.split("\"label\":\"").nth(1).unwrap().split('"').next().unwrap();
    let file = folder.file("evil.jsonl", line.replace(label, "</script><b>&{{data}}"));
    let [html, svg] = ["page.html", "page.svg"].map(|name| folder.path(name));
    orlop(&["plan", &file, "--html", &html, "--svg", &svg]).result();
    let page = std::fs::read_to_string(&html).unwrap();
    assert_eq!(page.matches("</script>").count(), 2, "the data's and the code's own ends");
    assert!(page.contains("\\u003c/script>\\u003cb>&{{data}}"));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("&lt;/script&gt;&lt;b&gt;&amp;{{data}}"));
}

#[test]
fn a_map_has_letters_for_kinds_and_a_mark_at_the_peak() {
    let csv = "id,lower,upper,size\na,0,4,100\nb,4,8,100\nc,2,6,60\n";
    let folder = Folder::new();
    let file = folder.file("three.csv", csv);
    let text = orlop(&["plan", &file, "--map"]).result();
    let map: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("memory arena")).collect();
    assert_eq!(map[0], "memory arena: 160 B, peak at step 2");
    assert_eq!(map.len(), 1 + 16 + 2, "{text}");
    assert!(map[1].ends_with(" ··AAAA··"), "{text}");
    assert!(map[16].ends_with("0 B AAAAAAAA"), "{text}");
    assert_eq!(map[17].find('^'), Some(12 + 2), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours where no terminal is");
}

#[test]
fn only_selected_graphs_are_planned() {
    let all = fixture("graphs.jsonl.gz");
    let text = orlop(&["plan", &all, "--json"]).result();
    let labels: Vec<String> =
        crate::support::json_lines(&text).iter().map(|line| line["label"].to_string()).collect();
    let wanted = labels[1].trim_matches('"');
    let one = orlop(&["plan", &all, "--json", "--graph", wanted]).result();
    assert!(
        crate::support::json_lines(&one).iter().all(|line| line["label"].as_str().unwrap().contains(wanted))
    );
    let sentence = orlop(&["plan", &all, "--graph", "no such label"]).refusal(2);
    assert!(sentence.contains("none of") && sentence.contains("no such label"), "{sentence}");
}

#[test]
fn write_and_draw_errors_are_reported() {
    let folder = Folder::new();
    let nowhere = folder.path("no/such/folder/page.html");
    for option in ["--html", "--svg"] {
        let run = orlop(&["plan", UNET, option, &nowhere]);
        assert_eq!(run.status, Some(2));
        let sentence = run.sentence();
        assert!(sentence.starts_with(&nowhere) && sentence.contains("cannot write the file"), "{sentence}");
    }
    let empty = folder.file("empty.jsonl", EMPTY.replace('\n', " "));
    let page = folder.path("empty.html");
    for option in ["--html", "--svg"] {
        let run = orlop(&["plan", &empty, option, &page]);
        assert_eq!(run.status, Some(2));
        assert!(run.sentence().contains("`none` has no tensors in memory"), "{run:?}");
        assert!(!std::path::Path::new(&page).exists());
    }
    let several = orlop(&["plan", &fixture("graphs.jsonl.gz"), "--svg", &page]);
    assert_eq!(several.status, Some(2));
    assert!(several.sentence().contains("select one with --graph"), "{several:?}");
    orlop(&["plan", UNET, "--json", "--map"]).refusal(2);
}
