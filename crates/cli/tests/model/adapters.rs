use std::sync::Arc;

use orlop::gguf::{GgufFile, Writer};
use orlop::graph::DType;
use orlop_testkit::Random;

use crate::support::Folder;
use crate::with_model::{default_model, json, orlop};

/// An adapter's file of an architecture that changes the values of the first layer.
fn adapter(folder: &Folder, architecture: &str) -> String {
    let model = GgufFile::open(default_model()).unwrap();
    let name = "blk.0.attn_v.weight";
    let [from, into] = *model.tensor(name).unwrap().extents() else { panic!("a matrix") };
    let mut writer = Writer::new();
    let keys =
        [("general.architecture", architecture), ("general.type", "adapter"), ("adapter.type", "lora")];
    for (key, value) in keys {
        writer.set(key, value).unwrap();
    }
    for (half, extents) in [("a", [from, 2]), ("b", [2, into])] {
        let mut random = Random::named(half);
        let values = (0..extents.iter().product()).flat_map(|_| (0.1 * random.signed()).to_le_bytes());
        let bytes: Arc<[u8]> = values.collect();
        let name = format!("{name}.lora_{half}");
        writer.tensor_with(&name, DType::F32, &extents, move |out| out.write_all(&bytes)).unwrap();
    }
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    folder.file(&format!("{architecture}.gguf"), &bytes)
}

#[test]
fn adapters_change_logits_by_their_scale() {
    let folder = Folder::new();
    let file = adapter(&folder, "llama");
    let logits = |adapters: &[&str]| {
        let flags = adapters.iter().flat_map(|adapter| ["--lora", adapter]);
        let given = ["logits", "--json", "--last", "-c", "64", "--tokens", "1,2,3"];
        json(&given.into_iter().chain(flags).collect::<Vec<&str>>())["logits"].clone()
    };
    let [off, half, double] = [":0", ":0.5", ":2"].map(|scale| format!("{file}{scale}"));
    let plain = logits(&[]);
    assert_eq!(logits(&[&off]), plain);
    assert_ne!(logits(&[&file]), plain);
    assert_ne!(logits(&[&half]), logits(&[&file]));
    assert_ne!(logits(&[&file, &file]), logits(&[&file]));
    let memory = |adapters: &[&str]| {
        let given = ["plan", "-c", "64", "--json"].into_iter().chain(adapters.iter().copied());
        json(&given.collect::<Vec<&str>>())["devices"][0]["weights"].as_u64().unwrap()
    };
    assert!(memory(&["--lora", &double]) > memory(&[]), "adapters are a part of the plan");
}

#[test]
fn foreign_adapters_are_named_with_the_error() {
    let folder = Folder::new();
    let foreign = adapter(&folder, "qwen2");
    let model = default_model();
    let cases = [
        (foreign.as_str(), "the adapter: it is for the architecture `qwen2`, and the model is `llama`"),
        (model.as_str(), "the adapter: `general.type` is `"),
        ("/nowhere/at/all.gguf", "check the path"),
    ];
    for (file, expected) in cases {
        let said = orlop(&["run", "-n", "1", "--lora", file, "Hello"]).refusal(2);
        assert!(said.starts_with(file) && said.contains(expected), "{said}");
    }
}
