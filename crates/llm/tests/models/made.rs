//! Models that are made by rule, and what llama.cpp gives for them.

use std::sync::Arc;

use orlop_backend::Precision;
use orlop_gguf::{Array, GgufFile as Parts, GgufPart, MetadataValue, Writer};
use orlop_graph::DType;
use orlop_llm::{CacheTypes, Error, Model, Outputs, Settings};
use orlop_testkit::Random;
use serde_json::Value as Json;

use crate::support::{fixture, logits_of, tokens_of};

/// Fixtures that `generate.py` and `generate_exact.py` write, which say what each is made of.
pub(crate) const MODELS: [&str; 93] = [
    "llama",
    // Factors of the rotation, heads that do not add up to the width, biases everywhere.
    "llama-factors",
    "llama-linear",
    "llama-yarn",
    "llama-experts",
    "llama-experts-all",
    "qwen2",
    "qwen2-yarn",
    "qwen3",
    "qwen3moe",
    "phi3",
    // The factors of long contexts, heads turned in part.
    "phi3-long",
    "gpt2",
    "gpt2-scaled",
    "gemma3",
    // Every second layer with a window, another scale in the others, logits with a cap.
    "gemma3-scaled",
    "gemma3-whole",
    "mamba2",
    "mamba2-one-group",
    "smollm3",
    "mistral3",
    "internlm2",
    "ernie4_5",
    // Layers without attention, with a matrix in its place, without a feed-forward part; other numbers of heads in each.
    "deci",
    "granite",
    "granite-unturned",
    "minicpm",
    "minicpm-keys",
    "qwen2vl",
    "seed_oss",
    "qwen3vl",
    "hunyuan-dense",
    // With a block that predicts one token more, which is not run.
    "glm4",
    "glm4-sections",
    "olmo2",
    "olmo2-windows",
    "exaone4",
    "command-r",
    "cohere2",
    "muse-glimmer",
    "stablelm",
    "stablelm-parallel",
    "starcoder2",
    "gptneox",
    "gptneox-series",
    "phi2",
    "gemma",
    "gemma2",
    "qwen3vlmoe",
    "qwen2moe",
    "olmoe",
    "granitemoe",
    "hunyuan-moe",
    "ernie4_5-moe",
    "glm4moe",
    "minimax-m2",
    "gpt-oss",
    "mistral3-grown",
    "deepseek2",
    "deepseek2-old",
    "mistral4",
    "mamba",
    "mamba-normed",
    "jamba",
    "granitehybrid",
    "granitehybrid-experts",
    "falcon-h1",
    "falcon-h1-normed",
    "nemotron_h",
    "nemotron_h_moe",
    "nemotron_h_moe-latent",
    "lfm2",
    "lfm2-windows",
    "lfm2moe",
    // Embeddings for each layer, and layers that share keys and values.
    "gemma4",
    // Values made as keys are.
    "gemma4-values",
    "gemma4-experts",
    "xverse",
    "arcee",
    "exaone",
    "orion",
    "starcoder",
    "nemotron",
    "llama4",
    "dots1",
    "deepseek",
    "qwen35",
    // Intervals of three, told layer by layer.
    "qwen35-three",
    "qwen35moe",
    "qwen3next",
    // One matrix for queries, keys, values and gates.
    "qwen3next-old",
    "rwkv7",
    // Other bounds and factors of YaRN than its own.
    "llama-yarn-keys",
];

/// A model made by rule, some tokens, and the logits that llama.cpp gives behind each.
pub(crate) fn made(name: &str) -> (Model, Vec<u32>, Vec<Vec<f32>>) {
    let json = read(name);
    (model(&json), tokens_of(&json), logits_of(&json))
}

pub(crate) fn read(name: &str) -> Json {
    serde_json::from_str(&std::fs::read_to_string(fixture(&format!("{name}.json"))).unwrap()).unwrap()
}

pub(crate) fn model(json: &Json) -> Model {
    try_model(json, |_, _| {}).unwrap()
}

/// The model of a fixture, with weights that may be changed.
pub(crate) fn try_model(json: &Json, change: impl Fn(&str, &mut Vec<f32>)) -> Result<Model, Error> {
    let mut writer = Writer::new();
    for (key, value) in json["keys"].as_object().unwrap() {
        writer.set(key, metadata_value(value)).unwrap();
    }
    for tensor in json["tensors"].as_array().unwrap() {
        let name = tensor[0].as_str().unwrap();
        let extents: Vec<u64> =
            tensor[1].as_array().unwrap().iter().map(|extent| extent.as_u64().unwrap()).collect();
        let mut values = weights(name, &extents, tensor[2].as_f64().unwrap(), tensor[3].as_f64().unwrap());
        change(name, &mut values);
        let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
        writer.tensor_with(name, DType::F32, &extents, move |out| out.write_all(&bytes)).unwrap();
    }
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    Model::from_file(Parts::from_file(GgufPart::from_bytes(Arc::new(bytes)).unwrap()))
}

pub(crate) fn metadata_value(value: &Json) -> MetadataValue {
    match value {
        Json::String(text) => MetadataValue::from(text.as_str()),
        Json::Bool(flag) => MetadataValue::from(*flag),
        Json::Number(number) => match number.as_u64() {
            Some(number) => match u32::try_from(number) {
                Ok(number) => MetadataValue::from(number),
                Err(_) => MetadataValue::from(number),
            },
            None => MetadataValue::from(number.as_f64().unwrap() as f32),
        },
        Json::Array(flags) if flags.iter().all(Json::is_boolean) => {
            Array::Bool(flags.iter().map(|flag| flag.as_bool().unwrap()).collect()).into()
        }
        Json::Array(texts) if texts.iter().all(Json::is_string) => {
            let texts: orlop_gguf::Strings = texts.iter().map(|text| text.as_str().unwrap()).collect();
            Array::from(texts).into()
        }
        Json::Array(numbers) => {
            Array::U32(numbers.iter().map(|number| number.as_u64().unwrap() as u32).collect()).into()
        }
        other => panic!("{other}"),
    }
}

/// As `weights` in `generate.py`.
pub(crate) fn weights(name: &str, extents: &[u64], mean: f64, deviation: f64) -> Vec<f32> {
    let mut random = Random::named(name);
    let mut value = || {
        let unit = (random.next() >> 40) as f64 / f64::from(1 << 24);
        (mean + deviation * (unit - 0.5) * 3.5) as f32
    };
    (0..extents.iter().product::<u64>()).map(|_| value()).collect()
}

/// Nothing is rounded to less than 32 bits.
pub(crate) fn exact() -> Settings {
    Settings {
        outputs: Outputs::All,
        precision: Precision::F32,
        cache: CacheTypes { k: DType::F32, v: DType::F32 },
        ..Settings::default()
    }
}

/// The same model, with half of each matrix and a scale of 2 beside it.
pub(crate) fn halved_beside_scales(json: &Json) -> Model {
    let mut json = json.clone();
    let tensors = json["tensors"].as_array().unwrap();
    let scaled: Vec<(&str, u64)> = tensors.iter().filter_map(|tensor| product_of(tensor, tensors)).collect();
    let scales =
        scaled.iter().map(|(stem, count)| serde_json::json!([format!("{stem}.scale"), [count], 2.0, 0.0]));
    let all: Vec<Json> = tensors.iter().cloned().chain(scales).collect();
    let halved: Vec<String> = scaled.iter().map(|(stem, _)| format!("{stem}.weight")).collect();
    json["tensors"] = all.into();
    try_model(&json, |name, values| {
        if halved.iter().any(|halved| halved == name) {
            values.iter_mut().for_each(|value| *value /= 2.0);
        }
    })
    .unwrap()
}

/// The stem of a matrix that something is multiplied with, and how many scales it has, unless it has them already.
fn product_of<'a>(tensor: &'a Json, all: &[Json]) -> Option<(&'a str, u64)> {
    let stem = tensor[0].as_str().unwrap().strip_suffix(".weight")?;
    let extents = tensor[1].as_array().unwrap();
    let others = ["norm", "conv", "conv1d", "lerp_fused", "r_k", "inp_shexp", "types", "position_embd"];
    // The first layer of RWKV 7 has no use for two of its matrices.
    let prefixes = ["per_layer_token", "blk.0.time_mix_v1", "blk.0.time_mix_v2"];
    let other = others.iter().any(|other| stem.ends_with(other))
        || prefixes.iter().any(|prefix| stem.starts_with(prefix));
    let scale = format!("{stem}.scale");
    let has_one = all.iter().any(|tensor| tensor[0] == scale.as_str());
    let count = if stem.ends_with("_exps") { extents[2].as_u64().unwrap() } else { 1 };
    (extents.len() > 1 && !other && !has_one).then_some((stem, count))
}
