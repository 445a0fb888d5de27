//! Adapters against models whose weights are changed in 64 bits.

#[path = "../../fuzz/checks/lora.rs"]
mod check;

use std::sync::Arc;

use orlop_gguf::{Array, GgufFile, GgufPart, MetadataValue, Writer};
use orlop_graph::DType;
use orlop_llm::{Blueprint, Error, LoraAdapter, Model, SequenceId};
use orlop_testkit::Random;

use crate::made::{exact, made, read, try_model, weights};
use crate::spoiled::spoiled;
use crate::support::{load, nmse, one_cpu, rows, tokens_of};

const RANK: u64 = 3;

/// The extents of the halves of a change.
fn halves(name: &str, extents: &[u64]) -> [Vec<u64>; 2] {
    let [from, into] = [extents[0], extents[1]];
    let [mut a, mut b] = match name {
        "token_embd.weight" => [vec![RANK, into], vec![RANK, from]],
        _ => [vec![from, RANK], vec![RANK, into]],
    };
    a.extend(&extents[2..]);
    b.extend(&extents[2..]);
    [a, b]
}

fn values(name: &str, seed: u32, half: usize, extents: &[u64]) -> Vec<f32> {
    weights(&format!("{name}.{seed}.{half}"), extents, 0.0, 0.4)
}

/// Bytes of an adapter's file that changes tensors of these names and extents.
fn file(keys: &[(&str, MetadataValue)], changes: &[(&str, Vec<u64>)], seed: u32) -> Vec<u8> {
    let mut writer = Writer::new();
    for (key, value) in keys {
        writer.set(key, value.clone()).unwrap();
    }
    for (name, extents) in changes {
        for (half, extents) in halves(name, extents).iter().enumerate() {
            let values = values(name, seed, half, extents);
            let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
            let name = format!("{name}.lora_{}", ["a", "b"][half]);
            writer.tensor_with(&name, DType::F32, extents, move |out| out.write_all(&bytes)).unwrap();
        }
    }
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    bytes
}

fn keys(architecture: &str, alpha: f32) -> Vec<(&'static str, MetadataValue)> {
    vec![
        ("general.architecture", architecture.into()),
        ("general.type", "adapter".into()),
        ("adapter.type", "lora".into()),
        ("adapter.lora.alpha", alpha.into()),
    ]
}

fn adapter(bytes: Vec<u8>) -> Result<LoraAdapter, Error> {
    LoraAdapter::from_file(GgufFile::from_file(GgufPart::from_bytes(Arc::new(bytes))?))
}

/// The names and extents of some of a fixture's tensors.
fn some(json: &serde_json::Value, names: &[&'static str]) -> Vec<(&'static str, Vec<u64>)> {
    let tensors = json["tensors"].as_array().unwrap();
    let extents = |name: &&'static str| {
        let tensor = tensors.iter().find(|tensor| tensor[0] == *name).unwrap_or_else(|| panic!("{name}"));
        (*name, tensor[1].as_array().unwrap().iter().map(|extent| extent.as_u64().unwrap()).collect())
    };
    names.iter().map(extents).collect()
}

/// The scales of the matrices of a tensor, where it has any.
fn scales(json: &serde_json::Value, name: &str) -> Vec<f32> {
    let scale = name.replace(".weight", ".scale");
    let found = json["tensors"].as_array().unwrap().iter().find(|tensor| tensor[0] == scale);
    let Some(tensor) = found else { return vec![1.0] };
    let count = tensor[1][0].as_u64().unwrap();
    weights(&scale, &[count], tensor[2].as_f64().unwrap(), tensor[3].as_f64().unwrap())
}

/// The model with `factor * B A` added to its weights as they are with their scales.
fn merged(json: &serde_json::Value, changes: &[(&str, Vec<u64>)], seed: u32, factor: f64) -> Model {
    let rank = RANK as usize;
    let change = |name: &str, all: &mut Vec<f32>| {
        let Some((_, extents)) = changes.iter().find(|(changed, _)| *changed == name) else { return };
        let [from, into] = [extents[0] as usize, extents[1] as usize];
        let [a_extents, b_extents] = halves(name, extents);
        let (a, b) = (values(name, seed, 0, &a_extents), values(name, seed, 1, &b_extents));
        let scales = scales(json, name);
        for (index, value) in all.iter_mut().enumerate() {
            let (i, o, matrix) = (index % from, index / from % into, index / from / into);
            let sum: f64 = (0..rank)
                .map(|r| {
                    let (a, b) = match name {
                        "token_embd.weight" => (a[o * rank + r], b[i * rank + r]),
                        _ => (a[(matrix * rank + r) * from + i], b[(matrix * into + o) * rank + r]),
                    };
                    f64::from(a) * f64::from(b)
                })
                .sum();
            *value = (f64::from(*value) + factor * sum / f64::from(scales[matrix])) as f32;
        }
    };
    try_model(json, change).unwrap()
}

const CHANGED: [(&str, &[&str]); 5] = [
    (
        "llama",
        &[
            "token_embd.weight",
            "blk.0.attn_q.weight",
            "blk.0.attn_k.weight",
            "blk.1.attn_v.weight",
            "blk.1.attn_output.weight",
            "blk.0.ffn_gate.weight",
            "blk.0.ffn_up.weight",
            "blk.1.ffn_down.weight",
            "output.weight",
        ],
    ),
    ("gpt2", &["blk.0.attn_qkv.weight", "blk.1.ffn_up.weight"]),
    (
        "qwen3moe",
        &[
            "blk.0.ffn_gate_inp.weight",
            "blk.0.ffn_gate_exps.weight",
            "blk.0.ffn_up_exps.weight",
            "blk.1.ffn_down_exps.weight",
        ],
    ),
    ("qwen35", &["blk.1.ssm_out.weight", "blk.3.attn_q.weight", "blk.7.attn_q.weight"]),
    ("rwkv7", &["blk.0.time_mix_key.weight", "blk.1.channel_mix_value.weight"]),
];

#[test]
fn an_adapter_gives_the_logits_of_changed_weights() {
    for (name, names) in CHANGED {
        let json = read(name);
        let (base, tokens, _) = made(name);
        let changes = some(&json, names);
        let one = adapter(file(&keys(name, 6.0), &changes, 0)).unwrap().scaled(0.5).unwrap();
        let adapted = rows(&mut load(&base.with_adapters(&[one]).unwrap(), &one_cpu(), &exact()), &tokens);
        let expected = merged(&json, &changes, 0, 0.5 * 6.0 / RANK as f64);
        let expected = rows(&mut load(&expected, &one_cpu(), &exact()), &tokens);
        let plain = rows(&mut load(&base, &one_cpu(), &exact()), &tokens);
        let error = nmse(&adapted, &expected).sqrt();
        assert!(error < 1e-5, "{name}: {error:e}");
        assert!(nmse(&adapted, &plain).sqrt() > 1e-2, "{name} is hardly changed");
    }
}

#[test]
fn adapters_add_up_and_can_be_turned_off_and_on() {
    let (name, names) = CHANGED[0];
    let json = read(name);
    let (base, tokens, _) = made(name);
    let changes = some(&json, names);
    // Without alpha, the scale is the whole factor.
    let [one, other] = [1, 2].map(|seed| adapter(file(&keys(name, 0.0), &changes, seed)).unwrap());
    let both = base.with_adapters(&[one]).unwrap().with_adapters(&[other.scaled(0.0).unwrap()]).unwrap();
    let mut engine = load(&both, &one_cpu(), &exact());
    let mut with = |scales: [f32; 2]| {
        engine.truncate(0);
        for (index, scale) in scales.into_iter().enumerate() {
            engine.set_adapter_scale(index, scale).unwrap();
        }
        assert_eq!(engine.adapter_scales(), scales);
        rows(&mut engine, &tokens)
    };
    let found = [[0.7, 0.0], [0.0, -0.3], [0.7, -0.3], [0.0, 0.0]].map(&mut with);
    let alone = |seed: u32, factor: f64| {
        rows(&mut load(&merged(&json, &changes, seed, factor), &one_cpu(), &exact()), &tokens)
    };
    assert!(nmse(&found[0], &alone(1, f64::from(0.7_f32))).sqrt() < 1e-5);
    assert!(nmse(&found[1], &alone(2, f64::from(-0.3_f32))).sqrt() < 1e-5);
    assert!(nmse(&found[2], &found[0]).sqrt() > 1e-2);
    assert!(nmse(&found[2], &found[1]).sqrt() > 1e-2);
    assert_eq!(found[3], rows(&mut load(&base, &one_cpu(), &exact()), &tokens));
    let error = engine.set_adapter_scale(2, 1.0).unwrap_err().to_string();
    assert_eq!(error, "the adapter: there is no adapter 2: the model has 2");
    let error = engine.set_adapter_scale(0, f32::NAN).unwrap_err().to_string();
    assert_eq!(error, "the adapter: `the scale` is NaN: it must be a finite number");
    assert_eq!(engine.adapter_scales(), [0.0, 0.0]);
}

#[test]
fn a_saved_sequence_belongs_to_its_adapters() {
    let (name, names) = CHANGED[0];
    let (base, tokens, _) = made(name);
    let changes = some(&read(name), names);
    let one = adapter(file(&keys(name, 0.0), &changes, 1)).unwrap();
    let mut engine = load(&base.with_adapters(&[one]).unwrap(), &one_cpu(), &exact());
    engine.feed(&tokens).unwrap();
    let bytes = engine.sequence_bytes(SequenceId::FIRST, &tokens).unwrap();
    let mut load_again = |scale: f32| {
        engine.set_adapter_scale(0, scale).unwrap();
        engine.load_sequence_bytes(SequenceId::FIRST, Arc::new(bytes.clone()))
    };
    let error = load_again(0.5).unwrap_err().to_string();
    assert!(error.contains("times [1.0]") && error.contains("times [0.5]"), "{error}");
    assert_eq!(load_again(1.0).unwrap(), tokens);
}

#[test]
fn adapters_that_do_not_fit_are_refused_by_name() {
    let (base, ..) = made("llama");
    let q = ("blk.0.attn_q.weight", vec![48, 48]);
    let with = |key: &'static str, value: MetadataValue| {
        let mut keys = keys("llama", 1.0);
        keys.retain(|(known, _)| *known != key);
        keys.push((key, value));
        file(&keys, std::slice::from_ref(&q), 0)
    };
    let of = |changes: &[(&str, Vec<u64>)]| file(&keys("llama", 1.0), changes, 0);
    let cases = [
        (
            with("general.type", "model".into()),
            "`general.type` is `model`, and `adapter` in files of adapters",
        ),
        (with("adapter.type", "hat".into()), "`adapter.type` is `hat`"),
        (with("general.architecture", "qwen2".into()), "the architecture `qwen2`, and the model is `llama`"),
        (with("adapter.lora.alpha", f32::INFINITY.into()), "`adapter.lora.alpha` is inf"),
        (
            with("adapter.alora.invocation_tokens", Array::U32(vec![1]).into()),
            "adapters that tokens turn on are not supported",
        ),
        (of(&[]), "it has no tensors"),
        (of(&[("blk.7.attn_q.weight", vec![48, 48])]), "it changes `blk.7.attn_q.weight`, with which"),
        (
            of(&[("blk.0.attn_q.weight", vec![48, 47])]),
            "`blk.0.attn_q.weight` of [48, 48] by [48, 3] and [3, 47]",
        ),
        (of(&[("blk.0.attn_norm.weight", vec![48, 1])]), "`blk.0.attn_norm.weight`, with which the model"),
    ];
    for (bytes, expected) in cases {
        let planned = adapter(bytes)
            .and_then(|adapter| base.with_adapters(&[adapter]))
            .and_then(|model| Blueprint::plan(&model, &one_cpu(), &exact()));
        let error = planned.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, and not {expected}");
    }
    let mut writer = Writer::new();
    for (key, value) in keys("llama", 1.0) {
        writer.set(key, value).unwrap();
    }
    writer
        .tensor_with("blk.0.attn_q.weight.lora_b", DType::F32, &[3, 48], |out| out.write_all(&[0; 576]))
        .unwrap();
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    let error = adapter(bytes).unwrap_err().to_string();
    assert_eq!(error, "the adapter: it has no tensor `blk.0.attn_q.weight.lora_a`, only the other half");
    let (tied, ..) = made("qwen2");
    let table = some(&read("qwen2"), &["token_embd.weight"]);
    let both = adapter(file(&keys("qwen2", 1.0), &table, 0)).unwrap();
    let error = tied.with_adapters(&[both]).unwrap_err().to_string();
    assert!(error.contains("which is the model's output matrix, too"), "{error}");
}

#[test]
fn two_thousand_spoiled_adapters_are_refused_or_usable() {
    let (base, ..) = made("llama");
    let changes = some(&read("llama"), CHANGED[0].1);
    let good = file(&keys("llama", 2.0), &changes, 0);
    let (mut random, mut refused) = (Random::new(5), 0);
    for number in 0..2000 {
        let model = adapter(spoiled(&good, &mut random)).and_then(|adapter| base.with_adapters(&[adapter]));
        match model {
            Ok(model) if number % 50 == 0 => drop(Blueprint::plan(&model, &one_cpu(), &exact())),
            Ok(_) => {}
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(refused > 500, "{refused}");
    let tokens = tokens_of(&read("llama"));
    assert_eq!(rows(&mut load(&base, &one_cpu(), &exact()), &tokens).len(), tokens.len());
}

/// The fuzz target's check, on its corpus and on a fixed count of spoiled copies of it.
#[test]
fn what_the_fuzzer_checks_holds_for_five_hundred_spoiled_adapters() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/lora/adapter");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let changes = [("blk.0.attn_q.weight", vec![64, 64]), ("output.weight", vec![64, 300])];
        std::fs::write(path, file(&keys("llama", 2.0), &changes, 0)).unwrap();
    }
    let seed = std::fs::read(path).unwrap();
    let (base, machine) = check::base();
    check::add(&base, &machine, &seed).expect("UPDATE_GOLDEN=1 renews the corpus");
    let (mut random, mut good) = (Random::new(1), 0);
    for _ in 0..500 {
        good += usize::from(check::add(&base, &machine, &spoiled(&seed, &mut random)).is_ok());
    }
    assert!((50..450).contains(&good), "{good} spoiled ones are taken");
}
