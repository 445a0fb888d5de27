//! Caches of quantized types.

use orlop_graph::DType;
use orlop_llm::{CacheTypes, Model, Settings};
use orlop_sched::Machine;
use serde_json::{Value as Json, json};

use crate::made::{exact, try_model};
use crate::support::{fixture, load, nmse, one_cpu, one_reference, rows};

/// As the fixture, with two heads of 32 elements that share keys and values.
fn with_long_heads() -> Json {
    let text = std::fs::read_to_string(fixture("qwen2.json")).unwrap();
    let mut json: Json = serde_json::from_str(&text).unwrap();
    for (key, value) in [("head_count", 2), ("head_count_kv", 1), ("key_length", 32), ("value_length", 32)] {
        json["keys"][format!("qwen2.attention.{key}")] = json!(value);
    }
    json["keys"]["qwen2.rope.dimension_count"] = json!(32);
    for tensor in json["tensors"].as_array_mut().unwrap() {
        let name = tensor[0].as_str().unwrap().split('.').skip(2).collect::<Vec<_>>().join(".");
        tensor[1] = match name.as_str() {
            "attn_q.weight" => json!([48, 64]),
            "attn_q.bias" => json!([64]),
            "attn_k.weight" | "attn_v.weight" => json!([48, 32]),
            "attn_k.bias" | "attn_v.bias" => json!([32]),
            "attn_output.weight" => json!([64, 48]),
            _ => continue,
        };
    }
    json
}

/// A large bias of keys, as trained models have it.
fn with_outliers() -> Model {
    let json = with_long_heads();
    let outlier = |name: &str, values: &mut Vec<f32>| {
        if name.ends_with("attn_k.bias") {
            values[9] = 40.0;
        }
    };
    try_model(&json, outlier).unwrap()
}

/// With caches of these types, from what F32 caches give.
fn error(machine: &Machine, k: DType, v: DType) -> f64 {
    let (model, tokens) = (with_outliers(), [3, 17, 5, 40, 8, 29, 11, 2, 33, 21, 6, 14]);
    let of = |settings: &Settings| rows(&mut load(&model, machine, settings), &tokens);
    nmse(&of(&Settings { cache: CacheTypes { k, v }, ..exact() }), &of(&exact()))
}

/// Without a rotation the outlier sets a scale that is five times as large, and errors are its square.
#[test]
fn outliers_of_keys_stay_out_of_the_errors_of_quantized_caches() {
    for machine in [one_cpu(), one_reference()] {
        for (k, v, most) in [
            (DType::Q8_0, DType::F32, 1e-3),
            (DType::F32, DType::Q8_0, 1e-3),
            (DType::Q8_0, DType::Q8_0, 2e-3),
            (DType::Q4_0, DType::Q4_0, 0.5),
        ] {
            let error = error(&machine, k, v);
            assert!(error < most, "keys {k}, values {v}: {error:e}");
        }
    }
}
