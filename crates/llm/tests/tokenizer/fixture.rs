//! Vocabularies with texts and the ids that other libraries give for them, from `generate.py`.

use orlop_gguf::{Array, Metadata, Strings};
use orlop_llm::Tokenizer;
use serde_json::Value;

pub(crate) struct Fixture {
    pub(crate) metadata: Metadata,
    /// Texts, ids, and the text that the ids decode to.
    pub(crate) cases: Vec<(String, Vec<u32>, String)>,
}

impl Fixture {
    pub(crate) fn tokenizer(&self) -> Tokenizer {
        Tokenizer::from_metadata(&self.metadata).unwrap()
    }
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn strings(value: &Value) -> Array {
    let strings: Strings = value.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect();
    Array::from(strings)
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

pub(crate) fn load(text: &str) -> Fixture {
    let fixture = json(text);
    // Byte-level families share one vocabulary.
    let shared = json(include_str!("fixtures/byte-level.json"));
    let vocabulary = if fixture["tokens"].is_array() { &fixture } else { &shared };
    let mut metadata = Metadata::new();
    let mut set = |key: &str, value: orlop_gguf::MetadataValue| {
        metadata.set(&format!("tokenizer.ggml.{key}"), value).unwrap();
    };
    set("model", fixture["model"].as_str().unwrap().into());
    set("tokens", strings(&vocabulary["tokens"]).into());
    let types = ids(&vocabulary["types"]).into_iter().map(|kind| kind as i32).collect();
    set("token_type", Array::I32(types).into());
    if let Some(pre) = fixture["pre"].as_str() {
        set("pre", pre.into());
        set("merges", strings(&vocabulary["merges"]).into());
        set("eos_token_id", 2u32.into());
    }
    if let Some(scores) = fixture["scores"].as_array() {
        let scores = scores.iter().map(|score| score.as_f64().unwrap() as f32).collect();
        set("scores", Array::F32(scores).into());
        set("add_space_prefix", fixture["space_prefix"].as_bool().unwrap().into());
    }
    if let Some(name) = fixture["name"].as_str() {
        metadata.set("general.name", name).unwrap();
    }
    let decoded = fixture["decoded"].as_array().unwrap();
    let cases = fixture["cases"].as_array().unwrap().iter().zip(decoded);
    let case = |(case, decoded): (&Value, &Value)| {
        (case[0].as_str().unwrap().to_owned(), ids(&case[1]), decoded.as_str().unwrap().to_owned())
    };
    Fixture { metadata, cases: cases.map(case).collect() }
}
