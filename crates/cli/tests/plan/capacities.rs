//! Graphs within a capacity.

use serde_json::{Value, json};

use crate::support::{Folder, fixture, fixture_text, json_lines, list, number, orlop};

const NETWORK: &str = "densenet121/224/b1/im2col";

fn network() -> Value {
    let graphs = json_lines(&fixture_text("graphs.jsonl.gz"));
    graphs.into_iter().find(|graph| graph["label"] == NETWORK).expect("a fixture")
}

fn report(arguments: &[&str]) -> Value {
    let file = fixture("graphs.jsonl.gz");
    let all = [&["plan", &file, "--graph", NETWORK, "--json"], arguments].concat();
    json_lines(&orlop(&all).result()).remove(0)
}

#[test]
fn steps_are_added_where_no_plan_of_the_given_ones_fits() {
    let folder = Folder::new();
    let given = report(&[]);
    let (floor, peak) = (number(&given["floor"]), number(&given["buffers"][0]["peak"]));
    assert!(floor < peak && given.get("added").is_none());
    let capacity = floor + (peak - floor) / 2;
    let out = folder.path("out.jsonl");
    let made = report(&["--capacity", &capacity.to_string(), "--output", &out]);
    assert!(number(&made["buffers"][0]["peak"]) <= capacity);
    let added = &made["added"];
    assert!(number(&added["again"]) + number(&added["copies"]) > 0, "{added}");
    assert!(added["seconds"].as_f64() < made["seconds"].as_f64(), "{added}");

    let placed = &json_lines(&std::fs::read_to_string(&out).expect("the output"))[0];
    let runs = list(&placed["steps"]).iter().filter(|step| step["what"] == "run");
    let mut nodes: Vec<u64> = runs.map(|step| number(&step["node"])).collect();
    nodes.sort_unstable();
    let count = list(&network()["nodes"]).len() as u64;
    assert!(nodes.into_iter().eq(0..count), "every node runs once");
    let values = list(&placed["values"]);
    let is_known = |place: &Value| (number(&place[0]) as usize) < values.len();
    assert!(list(&placed["plan"]).iter().all(is_known));
    assert!(list(&placed["steps"]).len() > count as usize);
}

#[test]
fn people_see_the_floor_and_the_added_time() {
    let file = fixture("graphs.jsonl.gz");
    let plan =
        |arguments: &[&str]| orlop(&[&["plan", &file, "--graph", NETWORK], arguments].concat()).result();
    let head = plan(&[]).lines().next().expect("a head").to_owned();
    assert!(head.contains("floor") && !head.contains("added time"), "{head}");
    let capacity = number(&report(&[])["floor"]).to_string();
    let text = plan(&["--capacity", &capacity, "--map"]);
    assert!(text.lines().next().is_some_and(|head| head.contains("added time")), "{text}");
    assert!(text.lines().nth(1).is_some_and(|row| row.contains(" %")), "{text}");
}

#[test]
fn a_capacity_that_is_missed_has_no_added_time() {
    let (file, floor) = (fixture("graphs.jsonl.gz"), number(&report(&[])["floor"]));
    let run = orlop(&["plan", &file, "--graph", NETWORK, "--capacity", &(floor - 1).to_string()]);
    assert_eq!(run.status, Some(4), "{run:?}");
    let row = run.stdout.lines().nth(1).expect("a row");
    assert!(row.contains("not met") && !row.contains(" %"), "{row}");
}

#[test]
fn below_the_floor_a_capacity_is_proven_impossible() {
    let floor = number(&report(&[])["floor"]);
    let run = |capacity: u64| {
        let (file, capacity) = (fixture("graphs.jsonl.gz"), capacity.to_string());
        orlop(&["plan", &file, "--graph", NETWORK, "--json", "--capacity", &capacity])
    };
    let below = run(floor - 1);
    assert_eq!(below.status, Some(4), "{below:?}");
    assert!(below.sentence().contains(&format!("a --capacity of {floor} or more")));
}

#[test]
fn a_plan_with_added_steps_is_not_saved() {
    let folder = Folder::new();
    let (capacity, out) = (number(&report(&[])["floor"]).to_string(), folder.path("plan.json"));
    let file = fixture("graphs.jsonl.gz");
    let run = orlop(&["plan", &file, "--graph", NETWORK, "--json", "--capacity", &capacity, "--save", &out]);
    assert!(run.refusal(2).contains("added steps"));
    assert!(folder.files().is_empty());
}

#[test]
fn a_page_draws_memory_against_added_time() {
    let folder = Folder::new();
    let page = folder.path("page.html");
    report(&["--html", &page]);
    let text = std::fs::read_to_string(&page).expect("a page");
    let points = text.split("\"trade_offs\":[").nth(1).expect("a list");
    let points = points.split(']').next().expect("its end").matches("added_time").count();
    assert!(points > 2, "{points} points");
}

/// A graph whose smallest plan is one unit above its bound, which no search proves, as the buffer has chunks. A second
/// buffer keeps steps from being added.
fn unproven() -> Value {
    const UNIT: u64 = 32;
    let tensor = |name: &str, units: u64, src: &[usize]| {
        let bytes = units * UNIT;
        json!({"name": name, "op": "ADD", "type": "f32", "ne": [bytes / 4, 1, 1, 1], "nb": [4, bytes, bytes, bytes],
            "bytes": bytes, "view_src": -1, "view_offs": 0, "input": false, "output": src.is_empty() && units == 6,
            "external": false, "inplace": false, "src": src})
    };
    let buffer = |name: &str, max: u64, index: usize| json!({"name": name, "alignment": UNIT, "max_size": max, "same_as": index});
    // b, e, d, g, c, a reader of d, f, a, a reader of f and a; then leaves of both buffers.
    let tensors = [
        tensor("b", 3, &[]),
        tensor("e", 3, &[0]),
        tensor("d", 2, &[]),
        tensor("g", 1, &[1]),
        tensor("c", 2, &[]),
        tensor("reader", 0, &[2]),
        tensor("f", 3, &[3, 4]),
        tensor("a", 3, &[]),
        tensor("end", 0, &[6, 7]),
        tensor("kept", 6, &[]),
        tensor("other", 1, &[]),
    ];
    let nodes: Vec<[usize; 2]> = (0..9).map(|node| [node, 0]).collect();
    json!({"label": "unproven", "buffers": [buffer("chunked", 6 * UNIT, 0), buffer("other", u64::MAX, 1)],
        "tensors": tensors, "leafs": [[9, 0], [10, 1]], "nodes": nodes})
}

#[test]
fn a_capacity_that_nothing_proves_ends_with_the_best_plan() {
    let folder = Folder::new();
    let file = folder.file("unproven.jsonl", unproven().to_string());
    let report = json_lines(&orlop(&["plan", &file, "--json"]).result()).remove(0);
    let first = &report["buffers"][0];
    assert_eq!((number(&first["bound"]), number(&first["peak"])), (12 * 32, 13 * 32));
    assert_eq!(first["optimal"], false);
    let run = orlop(&["plan", &file, "--json", "--capacity", &(13 * 32).to_string()]);
    assert_eq!(run.status, Some(3), "{run:?}");
}
