use serde_json::Value;

use crate::support::{Folder, fixture, number, orlop};

/// Two buffers that cannot both start at 0 and a third that fits beside neither without a hole.
const TIGHT: &str = "id,lower,upper,size\na,0,2,4\nb,1,3,4\nc,2,4,8\n";

fn report(arguments: &[&str]) -> Value {
    let text = orlop(arguments).result();
    assert_eq!(text.lines().count(), 1);
    serde_json::from_str(&text).expect("one JSON object")
}

/// Checks that no two rows of a written file overlap in bytes and steps.
fn assert_apart(text: &str) {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').map(str::trim).collect();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let rows: Vec<[u64; 4]> = lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let field = |name: &str| fields[column(name).expect("a column")].parse().expect("a number");
            let row = [field("lower"), field("upper"), field("offset"), field("size")];
            let alignment = column("alignment").map_or(1, |column| fields[column].parse().expect("a number"));
            assert_eq!(row[2] % alignment, 0, "{line}");
            row
        })
        .collect();
    for (index, a) in rows.iter().enumerate() {
        for b in &rows[..index] {
            let in_time = a[0] < b[1] && b[0] < a[1];
            let in_space = a[2] < b[2] + b[3] && b[2] < a[2] + a[3];
            assert!(!(in_time && in_space), "{a:?} and {b:?}");
        }
    }
}

#[test]
fn the_report_has_bound_peak_and_gap() {
    let report = report(&["plan", &fixture("small.csv"), "--json"]);
    let keys: Vec<&String> = report.as_object().expect("an object").keys().collect();
    let expected = ["bound", "buffers", "gap", "optimal", "peak", "seconds", "stopped", "strategy"];
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(sorted, expected);
    // At steps 2 and 3: 4096 + 1024 + 300.
    assert_eq!(
        (&report["buffers"], &report["bound"], &report["peak"]),
        (&5.into(), &5420.into(), &5420.into())
    );
    assert_eq!((&report["gap"], &report["optimal"]), (&0.into(), &true.into()));
    assert_eq!(report["stopped"], Value::Null);
    assert!(report["seconds"].as_f64().expect("seconds") > 0.0);
}

#[test]
fn people_get_a_few_aligned_lines() {
    let text = orlop(&["plan", &fixture("small.csv")]).result();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["buffers", "bound", "peak", "gap", "optimal", "strategy", "time"]);
    assert!(text.lines().all(|line| line.len() >= 30));
}

#[test]
fn offsets_are_appended_to_the_original_columns() {
    let folder = Folder::new();
    let out = folder.path("out.csv");
    let printed = orlop(&["plan", &fixture("small.csv"), "--json", "--output", &out]).result();
    assert_eq!(printed.lines().count(), 1);
    let text = std::fs::read_to_string(&out).expect("the output");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "id, size, lower, upper, note, alignment,offset");
    assert!(lines[1].starts_with("embedding, 4096, 0, 3, read twice, 64,"), "{}", lines[1]);
    assert!(lines[2].starts_with("query, 1000, 1, 4, , 64,"), "{}", lines[2]);
    assert_eq!(lines.len(), 6);
    assert_apart(&text);
    assert_eq!(folder.files(), ["out.csv"]);
}

#[test]
fn an_offset_column_is_replaced() {
    let folder = Folder::new();
    let file = folder.file("in.csv", "offset,id,lower,upper,size\n99,a,0,2,8\n99,b,1,3,8\n");
    orlop(&["plan", &file, "-o", &file]).result();
    let text = std::fs::read_to_string(&file).expect("the output");
    assert_eq!(text.lines().next(), Some("offset,id,lower,upper,size"));
    assert_apart(&text);
}

#[test]
fn every_strategy_gives_a_plan() {
    let folder = Folder::new();
    for strategy in ["ggml", "order", "size", "lifetime", "area", "conflict", "best"] {
        let out = folder.path(strategy);
        let report =
            report(&["plan", &fixture("small.csv"), "--json", "--strategy", strategy, "--output", &out]);
        assert!(number(&report["peak"]) >= number(&report["bound"]));
        assert_apart(&std::fs::read_to_string(&out).expect("the output"));
        if strategy != "best" {
            assert_eq!(report["strategy"], strategy);
        }
    }
}

#[test]
fn a_capacity_below_the_bound_is_impossible() {
    let sentence = orlop(&["plan", &fixture("small.csv"), "--json", "--capacity", "5419"]).refusal(4);
    assert!(sentence.contains("5420") && sentence.contains("5419"), "{sentence}");
    let sentence = orlop(&["plan", &fixture("small.csv"), "--capacity", "1k"]).refusal(4);
    assert!(sentence.contains("1000"), "{sentence}");
    assert_eq!(orlop(&["plan", &fixture("small.csv"), "--capacity", "6KiB"]).status, Some(0));
}

#[test]
fn a_missed_capacity_still_shows_the_best_plan() {
    let folder = Folder::new();
    let file = folder.file("tight.csv", TIGHT);
    let out = folder.path("out.csv");
    // In the order of steps, `c` cannot lie below `b`; 12 bytes are possible with `b` on top.
    let run = orlop(&["plan", &file, "--json", "--strategy", "ggml", "--capacity", "12", "--output", &out]);
    assert_eq!(run.status, Some(3), "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert_eq!((number(&report["peak"]), number(&report["bound"]), number(&report["gap"])), (16, 12, 4));
    assert!(run.sentence().contains("--capacity"));
    assert_apart(&std::fs::read_to_string(&out).expect("the output"));
    let best = orlop(&["plan", &file, "--json", "--capacity", "12"]).result();
    assert!(best.contains("\"peak\":12"), "{best}");
}

#[test]
fn crlf_bom_and_blank_lines_are_accepted() {
    let folder = Folder::new();
    let file = folder.file("dos.csv", "\u{feff}id,lower,upper,size\r\n\r\na,0,2,4\r\nb,1,3,4\r\n\r\n");
    assert_eq!(number(&report(&["plan", &file, "--json"])["peak"]), 8);
}

#[test]
fn a_header_alone_is_a_problem_without_buffers() {
    let folder = Folder::new();
    let file = folder.file("none.csv", "id,lower,upper,size\n");
    let report = report(&["plan", &file, "--json"]);
    assert_eq!((number(&report["buffers"]), number(&report["peak"])), (0, 0));
    assert_eq!(orlop(&["plan", &file, "--explain"]).status, Some(0));
}

#[test]
fn the_densest_step_is_explained() {
    let text = orlop(&["plan", &fixture("small.csv"), "--explain"]).result();
    assert!(text.contains("step 2 needs 5420 bytes, in 3 buffers"), "{text}");
    let named: Vec<&str> = text.lines().rev().take(3).collect();
    assert!(named[0].contains("scores") && named[1].contains("query") && named[2].contains("embedding"));
}
