//! `orlop serve --plan`.

use crate::with_model::{json, orlop};

#[test]
fn the_plan_counts_sequences_by_whole_pages() {
    let plan = json(&["serve", "--plan", "--json", "-c", "4096", "--parallel", "20"]);
    // 30 layers with 3 heads of 64 F16 keys and as many values.
    assert_eq!(plan["cache_bytes_per_token"], 30 * 2 * 3 * 64 * 2);
    assert_eq!(plan["rows"], 4096);
    assert_eq!(plan["devices"][0]["kv"], 4096 * 30 * 2 * 3 * 64 * 2);
    let sequences: Vec<(u64, u64)> = plan["sequences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["context"].as_u64().unwrap(), entry["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(sequences, [(512, 8), (1024, 4), (2048, 2), (4096, 1)]);
    let short = json(&["serve", "--plan", "--json", "-c", "4096", "--parallel", "3", "--max-context", "100"]);
    assert_eq!(short["sequences"], serde_json::json!([{ "context": 100, "count": 3 }]));
}

#[test]
fn what_cannot_be_served_is_refused_before_a_model_is_loaded() {
    for (arguments, said) in [
        (&["serve", "--host", "0.0.0.0"][..], "--api-key"),
        (&["serve", "--api-key", "a key"], "--api-key"),
        (&["serve", "--parallel", "0"], "from 1 to 1024"),
        (&["serve", "--host", "no.such.host.invalid"], "--host"),
        (&["serve", "--api-key-file", "/nonexistent"], "--api-key-file"),
        (&["serve", "--json"], "--plan"),
        (&["serve", "--plan", "--lora", "/nonexistent.gguf"], "/nonexistent.gguf"),
    ] {
        let sentence = orlop(arguments).refusal(2);
        assert!(sentence.contains(said), "{arguments:?}: {sentence}");
    }
}
