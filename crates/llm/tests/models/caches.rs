//! Caches of quantized types.

use std::sync::Arc;

use orlop_backend::Device;
use orlop_graph::{DType, Leaf};
use orlop_llm::{Blueprint, CacheTypes, LayerChoice, LayerPlacement, Model, Settings};
use orlop_sched::Machine;
use orlop_testkit::devices::TestDevice;
use serde_json::{Value as Json, json};

use crate::made::{exact, try_model};
use crate::support::{cpu, fixture, load, nmse, one_cpu, one_reference, rows};

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

/// Softmax does not change when a vector is subtracted from all keys, nor when elements of keys are scaled and those of
/// queries inversely. Keys that are rotated alone have errors that are 60 to 3,000 times as large with biases that turn slowly,
/// and 2 to 5 times with others.
#[test]
fn large_biases_of_keys_cost_little_accuracy() {
    let slow = [(13, 250.0), (15, -400.0), (29, 300.0), (31, 200.0)];
    let fast = [(0, 60.0), (16, -80.0), (1, 30.0)];
    let cases = [
        (slow.as_slice(), DType::Q8_0, 1e-4),
        (&slow, DType::Q4_0, 2e-2),
        (&fast, DType::Q8_0, 5e-5),
        (&fast, DType::Q4_0, 2.5e-2),
    ];
    let errors = cases.map(|(biases, k, _)| {
        let change = |name: &str, values: &mut Vec<f32>| {
            if name.ends_with("attn_k.bias") {
                biases.iter().for_each(|(place, bias)| values[*place] = *bias);
            }
        };
        let model = try_model(&with_long_heads(), change).unwrap();
        let of = |k| {
            let settings = Settings { cache: CacheTypes { k, v: DType::F32 }, ..exact() };
            rows(&mut load(&model, &one_cpu(), &settings), &[3, 17, 5, 40, 8, 29, 11, 2, 33, 21, 6, 14])
        };
        nmse(&of(k), &of(DType::F32))
    });
    let small = cases.iter().zip(errors).all(|((.., most), error)| error < *most);
    assert!(small, "{errors:?}");
}

/// Matrices that rotate rows are set once, with the weights.
#[test]
fn a_step_sets_no_more_with_quantized_caches() {
    let model = with_outliers();
    let set_by_a_step = |k, v| {
        let settings = Settings { cache: CacheTypes { k, v }, ..exact() };
        let blueprint = Blueprint::plan(&model, &one_cpu(), &settings).unwrap();
        let (graph, _) = blueprint.planned_token();
        let inputs = graph.leaves().filter(|(_, leaf)| *leaf == Leaf::Input);
        inputs.map(|(id, _)| graph.tensor(id).desc.bytes()).sum::<u64>()
    };
    let expected = set_by_a_step(DType::F16, DType::F16);
    for (k, v) in [(DType::Q8_0, DType::Q8_0), (DType::Q4_0, DType::F16), (DType::F16, DType::Q8_0)] {
        assert_eq!(set_by_a_step(k, v), expected, "keys {k}, values {v}");
    }
}

/// Each device with quantized caches has the matrices, wherever its layers are, and the forecast counts them.
#[test]
fn what_quantized_caches_need_is_on_their_devices_and_in_the_forecast() {
    let (model, tokens) = (with_outliers(), [3, 17, 5, 40, 8, 29, 11]);
    let devices = ["a", "b"].map(|name| {
        TestDevice::builder(cpu(&format!("{name} kernels"), 1)).name(name).asynchronous(true).build()
    });
    let machine = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>);
    let machine = Machine::new(machine).unwrap();
    let [a, b] = [machine.find("a").unwrap(), machine.find("b").unwrap()];
    let layers = model.config().layers.len();
    let all_on_a = LayerPlacement::all_on(a, layers);
    let every_second = all_on_a.clone().with_layers(1..layers, 2, b);
    let caches_apart = LayerPlacement { caches: vec![b; layers], ..all_on_a.clone() };
    let cache = CacheTypes { k: DType::Q8_0, v: DType::Q8_0 };
    let quantized = Settings { cache, ..exact() };
    let expected = rows(&mut load(&model, &one_cpu(), &quantized), &tokens);
    for (layout, matrices) in [(all_on_a, [1, 0]), (every_second, [1, 1]), (caches_apart, [0, 1])] {
        let settings = Settings { layout: LayerChoice::Exactly(layout.clone()), ..quantized.clone() };
        let mut engine = load(&model, &machine, &settings);
        assert!(nmse(&rows(&mut engine, &tokens), &expected) < 1e-9, "{layout:?}");
        let (memory, forecast) = (engine.memory(), engine.blueprint().forecast().unwrap());
        assert_eq!(memory, forecast, "{layout:?}");
        for (device, share) in devices.iter().zip(&forecast.devices) {
            assert_eq!(device.counters().live_bytes, share.total(), "{}: {layout:?}", share.name);
        }
        let stored = engine.blueprint().stored().unwrap();
        let found = [a, b].map(|device| {
            let here = stored.iter().filter(|set| set.device == device).flat_map(|set| &set.tensors);
            here.filter(|tensor| tensor.name.starts_with("cache.rotation")).count()
        });
        assert_eq!(found, matrices, "{layout:?}");
        drop(engine);
    }
}
