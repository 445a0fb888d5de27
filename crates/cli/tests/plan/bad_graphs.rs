use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Folder, fixture, fixture_text, json_lines, orlop};

/// A graph of one leaf, one node and one view.
fn graph() -> Value {
    let tensor = |name: &str, op: &str, src: Vec<usize>| {
        json!({
            "name": name, "op": op, "type": "f32", "ne": [16, 1, 1, 1], "nb": [4, 64, 64, 64], "bytes": 64,
            "view_src": -1, "view_offs": 0, "input": false, "output": false, "external": false,
            "inplace": false, "src": src
        })
    };
    let mut view = tensor("view", "VIEW", vec![1]);
    view["view_src"] = 1.into();
    json!({
        "label": "small", "buffers": [{"name": "CPU", "alignment": 32, "max_size": u64::MAX, "same_as": 0}],
        "tensors": [tensor("in", "NONE", vec![]), tensor("out", "SQR", vec![0]), view],
        "leafs": [[0, 0]], "nodes": [[1, 0], [2, 0]]
    })
}

/// The error for a file, without its path.
fn refused(name: &str, contents: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    let file = folder.file(name, contents);
    let out = folder.file("out.jsonl", "as it was");
    let sentence = orlop(&["plan", &file, "--json", "--output", &out]).refusal(2);
    assert_eq!(std::fs::read_to_string(&out).expect("still there"), "as it was");
    let mut files = folder.files();
    files.retain(|file| file != name);
    assert_eq!(files, ["out.jsonl"]);
    let rest = sentence.strip_prefix(&file).unwrap_or_else(|| panic!("names the file: {sentence}"));
    rest.trim_start_matches(", ").to_owned()
}

/// The error for a changed graph after a valid one.
fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let mut changed = graph();
    change(&mut changed);
    let sentence = refused("bad.jsonl", format!("{}\n{changed}\n", graph()));
    sentence.strip_prefix("line 2").unwrap_or_else(|| panic!("names the line: {sentence}")).to_owned()
}

#[test]
fn the_small_graph_is_valid() {
    let folder = Folder::new();
    let file = folder.file("good.jsonl", graph().to_string());
    assert_eq!(json_lines(&orlop(&["plan", &file, "--json"]).result()).len(), 1);
}

#[test]
fn invalid_json_is_named_by_line_and_column() {
    let sentence = refused("bad.jsonl", format!("{}\n{{\"label\": oops}}\n", graph()));
    assert!(sentence.starts_with("line 2, column 11: expected"), "{sentence}");
    let text = graph().to_string();
    let cut = refused("bad.jsonl", &text[..text.len() - 10]);
    assert!(cut.starts_with("line 1, column ") && cut.contains("EOF"), "{cut}");
    let extra = refused("bad.jsonl", format!("{text} {text}"));
    assert!(extra.contains("trailing characters"), "{extra}");
}

#[test]
fn a_missing_key_is_named() {
    for key in ["label", "buffers", "tensors", "leafs", "nodes"] {
        let sentence = refusal(|graph| drop(graph.as_object_mut().and_then(|graph| graph.remove(key))));
        assert!(sentence.contains(&format!("missing field `{key}`")), "{sentence}");
    }
    for key in ["name", "op", "type", "ne", "nb", "bytes", "view_src", "view_offs", "input", "inplace", "src"]
    {
        let sentence =
            refusal(|graph| drop(graph["tensors"][1].as_object_mut().and_then(|tensor| tensor.remove(key))));
        assert!(sentence.contains(&format!("missing field `{key}`")), "{sentence}");
    }
    let sentence =
        refusal(|graph| drop(graph["buffers"][0].as_object_mut().and_then(|b| b.remove("same_as"))));
    assert!(sentence.contains("missing field `same_as`"), "{sentence}");
}

#[test]
fn a_value_of_another_type_is_refused() {
    let place = |sentence: &str| assert!(sentence.starts_with(", column "), "{sentence}");
    place(&refusal(|graph| graph["tensors"][1]["bytes"] = "64".into()));
    place(&refusal(|graph| graph["tensors"][1]["bytes"] = (-64).into()));
    place(&refusal(|graph| graph["tensors"][1]["bytes"] = 64.5.into()));
    place(&refusal(|graph| graph["tensors"][1]["ne"] = json!([1, 2, 3])));
    place(&refusal(|graph| graph["nodes"][0] = json!([1])));
    place(&refusal(|graph| graph["tensors"] = json!({})));
    place(&refused("bad.jsonl", "[]\n").replacen("line 1", "", 1));
    place(&refused("bad.jsonl", "17\n").replacen("line 1", "", 1));
}

#[test]
fn unknown_tensors_are_rejected() {
    let there_are = |sentence: &str| assert!(sentence.contains("names tensor 3 of 3"), "{sentence}");
    there_are(&refusal(|graph| graph["nodes"][0][0] = 3.into()));
    there_are(&refusal(|graph| graph["leafs"][0][0] = 3.into()));
    there_are(&refusal(|graph| graph["tensors"][1]["src"][0] = 3.into()));
    there_are(&refusal(|graph| graph["tensors"][2]["view_src"] = 3.into()));
    assert!(refusal(|graph| graph["tensors"][2]["view_src"] = (-2).into()).contains("below -1"));
}

#[test]
fn unknown_buffers_are_rejected() {
    let there_are = |sentence: &str| assert!(sentence.contains("names buffer 1 of 1"), "{sentence}");
    there_are(&refusal(|graph| graph["nodes"][0][1] = 1.into()));
    there_are(&refusal(|graph| graph["leafs"][0][1] = 1.into()));
    assert!(refusal(|graph| graph["buffers"] = json!([])).contains("`buffers` is empty"));
    assert!(refusal(|graph| graph["buffers"][0]["same_as"] = 1.into()).contains("`same_as` 1"));
    assert!(refusal(|graph| graph["buffers"][0]["alignment"] = 48.into()).contains("not a power of two"));
}

#[test]
fn a_view_of_a_view_is_refused() {
    assert!(refusal(|graph| graph["tensors"][1]["view_src"] = 0.into()).contains("which is a view itself"));
    assert!(refusal(|graph| graph["tensors"][2]["view_src"] = 2.into()).contains("which is a view itself"));
}

#[test]
fn a_view_must_lie_inside_planned_memory_and_may_leave_external_memory() {
    let sentence = refusal(|graph| graph["tensors"][2]["view_offs"] = 4.into());
    assert!(sentence.contains("ends at byte 68 of tensor 1, which has 64 bytes"), "{sentence}");
    let folder = Folder::new();
    let mut outside = graph();
    outside["tensors"][2]["view_offs"] = 4.into();
    outside["tensors"][1]["external"] = true.into();
    let file = folder.file("external.jsonl", outside.to_string());
    assert_eq!(orlop(&["plan", &file]).status, Some(0));
}

#[test]
fn nodes_read_what_earlier_nodes_wrote() {
    let sentence = refusal(|graph| graph["nodes"] = json!([[2, 0], [1, 0]]));
    assert!(sentence.contains("node 0 reads tensor 1, which node 1 writes"), "{sentence}");
    let sentence = refusal(|graph| graph["nodes"] = json!([[1, 0], [1, 0]]));
    assert!(sentence.contains("nodes 0 and 1 are both tensor 1"), "{sentence}");
}

#[test]
fn markers_read_what_they_mark() {
    let sentence = refusal(|graph| {
        graph["tensors"][2]["op"] = "NONE".into();
        graph["tensors"][2]["src"] = json!([0]);
    });
    assert!(sentence.contains("node 1 is a marker of tensor 1"), "{sentence}");
}

#[test]
fn sizes_that_overflow_are_rejected() {
    for bytes in [u64::MAX, u64::MAX - 64, 1 << 63] {
        let sentence = refusal(|graph| graph["tensors"][0]["bytes"] = bytes.into());
        assert!(sentence.contains("more than 2^62 bytes"), "{sentence}");
    }
    let sentence = refusal(|graph| graph["tensors"][2]["view_offs"] = u64::MAX.into());
    assert!(sentence.contains("ends beyond 64 bits"), "{sentence}");
}

#[test]
fn truncated_gzip_files_are_rejected() {
    let whole = std::fs::read(fixture("graphs.jsonl.gz")).expect("a fixture");
    for length in [5, 1000, whole.len() - 4] {
        let sentence = refused("cut.jsonl.gz", &whole[..length]);
        assert!(sentence.contains("damaged or truncated"), "{sentence}");
    }
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x55;
    let sentence = refused("flipped.jsonl.gz", flipped);
    assert!(sentence.contains("damaged or truncated"), "{sentence}");
}

#[test]
fn gzip_is_detected_by_its_magic() {
    let folder = Folder::new();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(fixture_text("pipeline.jsonl").as_bytes()).expect("memory");
    let packed = folder.file("packed.jsonl", packed.finish().expect("memory"));
    let plain = folder.file("plain.jsonl.gz", fixture_text("pipeline.jsonl"));
    let [packed, plain] = [packed, plain].map(|file| orlop(&["plan", &file, "--json"]).result());
    assert_eq!(packed, plain);
}

#[test]
fn empty_files_and_other_encodings_are_refused() {
    assert!(refused("bad.jsonl", "").starts_with(": the file is empty; "));
    assert!(refused("bad.jsonl", "\n \n").starts_with(": the file is empty; "));
    let sentence = refused("bad.jsonl", b"{\"label\":\n\"\xe9\"}");
    assert!(sentence.starts_with("line 2, column 2: invalid UTF-8"), "{sentence}");
}

#[test]
fn empty_graphs_need_no_memory() {
    let folder = Folder::new();
    let mut none = graph();
    none["tensors"] = json!([]);
    none["leafs"] = json!([]);
    none["nodes"] = json!([]);
    let file = folder.file("none.jsonl", none.to_string());
    let report = &json_lines(&orlop(&["plan", &file, "--json"]).result())[0];
    assert_eq!(report["buffers"][0]["peak"], 0);
    assert_eq!(orlop(&["plan", &file, "--explain"]).status, Some(0));
}
