use std::collections::HashMap;

use serde_json::{Value, json};

use crate::support::{Folder, fixture, fixture_text, json_lines, list, number, orlop};

fn tensor(name: &str, op: &str, bytes: u64, src: &[usize]) -> Value {
    json!({
        "name": name, "op": op, "type": "f32", "ne": [bytes / 4, 1, 1, 1], "nb": [4, bytes, bytes, bytes],
        "bytes": bytes, "view_src": -1, "view_offs": 0, "input": false, "output": false, "external": false,
        "inplace": false, "src": src
    })
}

/// Two branches that each compute and sum a large tensor; in the original order both tensors are live together.
fn branches() -> Value {
    json!({
        "label": "branches",
        "buffers": [{"name": "CPU", "alignment": 32, "max_size": u64::MAX, "same_as": 0}],
        "tensors": [
            tensor("in", "NONE", 32, &[]),
            tensor("large a", "REPEAT", 3200, &[0]), tensor("large b", "REPEAT", 6400, &[0]),
            tensor("small a", "SUM", 32, &[1]), tensor("small b", "SUM", 32, &[2]),
            tensor("out", "ADD", 32, &[3, 4]),
        ],
        "leafs": [[0, 0]], "nodes": [[1, 0], [2, 0], [3, 0], [4, 0], [5, 0]]
    })
}

/// The report and the places of one graph.
fn reordered(graph: &Value, arguments: &[&str]) -> (Value, Value) {
    let folder = Folder::new();
    let (file, out) = (folder.file("graph.jsonl", graph.to_string()), folder.path("out.jsonl"));
    let report = orlop(&[&["plan", &file, "--json", "--output", &out], arguments].concat()).result();
    let places = std::fs::read_to_string(&out).expect("the output");
    (json_lines(&report).remove(0), json_lines(&places).remove(0))
}

/// Whether sources come before their users, as they did, and nodes that touch one tensor with views keep their order.
fn is_legal(case: &Value, order: &[usize]) -> bool {
    let tensors = list(&case["tensors"]);
    let nodes: Vec<usize> = list(&case["nodes"]).iter().map(|node| number(&node[0]) as usize).collect();
    let mut touched: Vec<Vec<usize>> = Vec::new();
    let root = |tensor: usize| tensors[tensor]["view_src"].as_u64().map_or(tensor, |root| root as usize);
    for node in &nodes {
        let sources = list(&tensors[*node]["src"]).iter().map(|source| number(source) as usize);
        touched.push(sources.chain([*node]).collect());
    }
    let has_views = |tensor: usize| (0..tensors.len()).any(|view| view != tensor && root(view) == tensor);
    let viewed: HashMap<usize, bool> = (0..tensors.len()).map(|tensor| (tensor, has_views(tensor))).collect();
    let position: HashMap<usize, usize> = order.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let mut pairs = (0..nodes.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    pairs.all(|(first, second)| {
        let needs = touched[second].contains(&nodes[first]);
        let share = touched[first]
            .iter()
            .any(|a| viewed[&root(*a)] && touched[second].iter().any(|b| root(*a) == root(*b)));
        position[&first] < position[&second] || !(needs || share)
    })
}

#[test]
fn a_branch_is_ended_before_the_next_begins() {
    let (report, places) = reordered(&branches(), &["--reorder"]);
    let buffer = &report["buffers"][0];
    assert_eq!((number(&buffer["given"]), number(&buffer["peak"])), (3200 + 6400 + 32, 6400 + 32 + 32));
    let order: Vec<usize> = list(&places["order"]).iter().map(|node| number(node) as usize).collect();
    assert!(is_legal(&branches(), &order), "{order:?}");
    let text = orlop(&["plan", &fixture("graphs.jsonl.gz"), "--reorder"]).result();
    assert!(text.lines().next().is_some_and(|head| head.contains("original")), "{text}");
}

#[test]
fn without_the_option_nothing_changes_places() {
    let (report, places) = reordered(&branches(), &[]);
    assert_eq!((&report["buffers"][0]["given"], &places["order"]), (&Value::Null, &Value::Null));
    assert_eq!(number(&report["buffers"][0]["peak"]), 3200 + 6400 + 32);
}

#[test]
fn nodes_that_touch_what_has_views_keep_their_order() {
    let mut graph = branches();
    let mut view = tensor("view", "VIEW", 32, &[0]);
    view["view_src"] = 0.into();
    graph["tensors"].as_array_mut().expect("tensors").push(view);
    graph["nodes"].as_array_mut().expect("nodes").insert(0, json!([6, 0]));
    let (report, places) = reordered(&graph, &["--reorder"]);
    let order: Vec<usize> = list(&places["order"]).iter().map(|node| number(node) as usize).collect();
    assert!(is_legal(&graph, &order), "{order:?}");
    // The view, then the readers of its root in their original order.
    let read: Vec<&usize> = order.iter().filter(|node| **node < 3).collect();
    assert_eq!(read, [&0, &1, &2]);
    assert!(number(&report["buffers"][0]["peak"]) < number(&report["buffers"][0]["given"]));
}

#[test]
fn real_graphs_need_no_more_in_a_legal_order() {
    let folder = Folder::new();
    for name in ["graphs.jsonl.gz", "pipeline.jsonl"] {
        let out = folder.path("out.jsonl");
        let arguments = ["plan", &fixture(name), "--reorder", "--json", "--output", &out];
        let reports = json_lines(&orlop(&arguments).result());
        let places = json_lines(&std::fs::read_to_string(&out).expect("the output"));
        for ((case, report), places) in json_lines(&fixture_text(name)).iter().zip(&reports).zip(&places) {
            for buffer in list(&report["buffers"]) {
                assert!(number(&buffer["peak"]) <= number(&buffer["given"]), "{}", case["label"]);
            }
            let order: Vec<usize> = list(&places["order"]).iter().map(|node| number(node) as usize).collect();
            assert!(is_legal(case, &order), "{}", case["label"]);
        }
    }
}

#[test]
fn a_graph_without_nodes_has_an_order() {
    let mut graph = branches();
    graph["nodes"] = json!([]);
    let (report, places) = reordered(&graph, &["--reorder"]);
    assert_eq!(list(&places["order"]).len(), 0);
    assert_eq!(report["buffers"][0]["given"], report["buffers"][0]["peak"]);
}

#[test]
fn lifetimes_have_no_order() {
    let sentence = orlop(&["plan", &fixture("small.csv"), "--reorder"]).refusal(2);
    assert!(sentence.contains("--reorder"), "{sentence}");
}
