use orlop::gguf::{Array, Writer};
use orlop::graph::DType;
use serde_json::{Value, json};

use crate::support::{Folder, orlop};

/// Writes a small model and gives its path.
pub(crate) fn model(folder: &Folder) -> String {
    let tokens = (0..1000).map(|index| format!("token{index}"));
    let mut writer = Writer::new();
    writer.set("general.architecture", "none").unwrap();
    writer.set("none.epsilon", 1e-5f32).unwrap();
    writer.set("none.heads", Array::U32(vec![4; 8])).unwrap();
    writer.set("tokenizer.chat_template", "line\n".repeat(40)).unwrap();
    writer.set("tokenizer.tokens", Array::String(tokens.collect())).unwrap();
    writer.tensor("norm", DType::F32, &[64], &[0; 256]).unwrap();
    writer.tensor("up", DType::Q4_0, &[64, 3], &[1; 108]).unwrap();
    writer.tensor("down", DType::Q4_0, &[32, 2], &[1; 36]).unwrap();
    let path = folder.path("small.gguf");
    writer.create(&path).unwrap();
    path
}

#[test]
fn a_model_is_summed_up_by_type() {
    let folder = Folder::new();
    let path = model(&folder);
    let text = orlop(&["inspect", &path]).result();
    assert!(text.starts_with(&format!("{path}: GGUF version 3, ")), "{text}");
    assert!(text.contains("metadata: 5 keys") && text.contains("tensors: 3, 320 parameters"), "{text}");
    let rows: Vec<Vec<&str>> =
        text.lines().rev().take(4).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["total", "3", "320", "400"]);
    assert_eq!(rows[1], ["q4_0", "2", "256", "144"]);
    assert_eq!(rows[2], ["f32", "1", "64", "256"]);
    assert!(text.contains("1e-5") && text.contains("8 u32 [4, 4, 4, 4, 4, 4, …]"), "{text}");
}

#[test]
fn types_are_summed_up_alone() {
    let folder = Folder::new();
    let path = model(&folder);
    let text = orlop(&["inspect", &path, "--types"]).result();
    assert!(orlop(&["inspect", &path]).result().ends_with(&text), "{text}");
    assert_eq!(text.lines().count(), 5);
    let list: Value =
        serde_json::from_str(&orlop(&["inspect", &path, "--types", "--json"]).result()).unwrap();
    let expected = json!([
        { "type": "f32", "tensors": 1, "parameters": 64, "bytes": 256 },
        { "type": "q4_0", "tensors": 2, "parameters": 256, "bytes": 144 },
    ]);
    assert_eq!(list, expected);
}

#[test]
fn long_values_are_shortened_unless_all_is_asked_for() {
    let folder = Folder::new();
    let path = model(&folder);
    let short = orlop(&["inspect", &path]).result();
    assert!(short.contains("1000 string [\"token0\", ") && !short.contains("token6"), "{short}");
    assert!(short.contains("… (200 bytes)"), "{short}");
    let full = orlop(&["inspect", &path, "--full"]).result();
    assert!(full.contains("\"token999\"]") && !full.contains('…'), "{full}");
    assert_eq!(full.lines().count(), short.lines().count());
}

#[test]
fn tensors_are_listed_with_their_places() {
    let folder = Folder::new();
    let path = model(&folder);
    let text = orlop(&["inspect", &path, "--tensors"]).result();
    let up: Vec<&str> = text.lines().find(|line| line.contains(" up ")).unwrap().split_whitespace().collect();
    assert_eq!(up[..5], ["up", "q4_0", "64", "3", "108"]);
    assert!(!orlop(&["inspect", &path]).result().contains(" up "));
}

#[test]
fn json_is_one_object_with_every_tensor() {
    let folder = Folder::new();
    let path = model(&folder);
    let text = orlop(&["inspect", &path, "--json"]).result();
    assert_eq!(text.lines().count(), 1);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["version"], 3);
    assert_eq!(report["metadata"]["none.heads"], json!([4, 4, 4, 4, 4, 4, 4, 4]));
    assert_eq!(report["metadata"]["tokenizer.tokens"], json!({ "array": "string", "length": 1000 }));
    assert!(text.contains("\"none.epsilon\":1e-5") || text.contains("\"none.epsilon\":0.00001"), "{text}");
    let tensors = report["tensors"].as_array().unwrap();
    let offset = tensors[0]["offset"].as_u64().unwrap();
    assert!(offset.is_multiple_of(32));
    assert_eq!(
        tensors[1],
        json!({ "name": "up", "type": "q4_0", "extents": [64, 3], "bytes": 108, "offset": offset + 256, "part": 0 })
    );
    let full = orlop(&["inspect", &path, "--json", "--full"]).result();
    let full: Value = serde_json::from_str(&full).unwrap();
    assert_eq!(full["metadata"]["tokenizer.tokens"][999], "token999");
}

#[test]
fn numbers_that_json_does_not_have_are_null() {
    let folder = Folder::new();
    let path = folder.path("odd.gguf");
    let mut writer = Writer::new();
    writer.set("odd", f32::NAN).unwrap();
    writer.set("empty", Array::Array(vec![Array::Bool(vec![])])).unwrap();
    writer.create(&path).unwrap();
    let report: Value = serde_json::from_str(&orlop(&["inspect", &path, "--json"]).result()).unwrap();
    assert_eq!(report["metadata"], json!({ "odd": null, "empty": [[]] }));
    assert!(orlop(&["inspect", &path]).result().contains("NaN"));
}

/// Writes a part of a model of two and gives its path.
pub(crate) fn part(folder: &Folder, number: u16) -> String {
    let mut writer = Writer::new();
    writer.set("split.no", number).unwrap();
    writer.set("split.count", 2u16).unwrap();
    writer.set("split.tensors.count", 2i32).unwrap();
    writer.tensor(&format!("t{number}"), DType::F32, &[2], &[0; 8]).unwrap();
    let path = folder.path(&format!("m-{:05}-of-00002.gguf", number + 1));
    writer.create(&path).unwrap();
    path
}

#[test]
fn a_split_model_is_one_model() {
    let folder = Folder::new();
    part(&folder, 0);
    let second = part(&folder, 1);
    let text = orlop(&["inspect", &second, "--tensors"]).result();
    assert!(text.contains("in 2 parts") && text.contains("tensors: 2, 4 parameters"), "{text}");
    let report: Value = serde_json::from_str(&orlop(&["inspect", &second, "--json"]).result()).unwrap();
    assert_eq!(report["tensors"][1]["part"], 1);
}

#[test]
fn architectures_are_listed_by_name_with_models() {
    let list: Value =
        serde_json::from_str(&orlop(&["inspect", "--architectures", "--json"]).result()).unwrap();
    let text = orlop(&["inspect", "--architectures"]).result();
    let rows = list.as_array().unwrap();
    assert_eq!(rows.len(), text.lines().count());
    for (row, line) in rows.iter().zip(text.lines()) {
        let (name, models) = line.split_once(' ').unwrap();
        assert_eq!(*row, json!({ "name": name, "models": models.trim() }));
    }
    assert!(rows.contains(&json!({ "name": "qwen3", "models": "Qwen 3" })), "{text}");
}
