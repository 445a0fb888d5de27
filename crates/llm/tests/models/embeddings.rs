//! Models that make embeddings, against rows in 64 bits (`generate_encoders.py`).

use orlop_backend::Precision;
use orlop_llm::{
    Blueprint, DeviceMemory, Embedder, Engine, Error, Forecast, Model, Outputs, Pooling, Settings,
};
use orlop_sched::Machine;

use crate::made::{halved_beside_scales, model, read, try_model};
use crate::support::{nmse, one_cpu, one_reference};

/// Fixtures that `generate_encoders.py` writes, which says what each is made of.
pub(crate) const ENCODERS: [&str; 12] = [
    "bert",
    "bert-rank",
    "nomic-bert",
    // Norms of queries and keys; a gate in the same matrix, and two norms behind the attention; no gate.
    "jina-bert-v2",
    "jina-bert-v2-fused",
    "jina-bert-v2-plain",
    // Windows in two of three layers.
    "modern-bert",
    "modern-bert-silu",
    "modern-bert-rank",
    "gemma-embedding",
    "qwen3-embedding",
    "qwen3-rank",
];

fn exact() -> Settings {
    Settings { precision: Precision::F32, ..Settings::default() }
}

fn load(model: &Model, machine: &Machine, settings: &Settings) -> Result<Embedder, Error> {
    Embedder::load(Embedder::plan(model, machine, settings, None)?, &mut |_, _| ())
}

/// A model, some texts, and what stands for each.
fn made(name: &str) -> (Model, Vec<Vec<u32>>, Vec<Vec<f32>>) {
    let json = read(name);
    let texts = serde_json::from_value(json["texts"].clone()).unwrap();
    (model(&json), texts, serde_json::from_value(json["rows"].clone()).unwrap())
}

/// Embeddings, or scores.
fn rows(embedder: &mut Embedder, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    match embedder.pooling() {
        Pooling::Rank => embedder.score_tokens(texts).unwrap(),
        _ => embedder.embed_tokens(texts).unwrap().rows,
    }
}

fn check(machine: &Machine) {
    for name in ENCODERS {
        let (model, texts, expected) = made(name);
        let mut embedder = load(&model, machine, &exact()).unwrap();
        assert_eq!(embedder.dimensions() as usize, expected[0].len(), "{name}");
        let found = rows(&mut embedder, &texts);
        let error = nmse(&found, &expected).sqrt();
        assert!(error < 1e-5, "{name}, all together: {error:e}");
        let alone: Vec<Vec<f32>> =
            texts.iter().flat_map(|text| rows(&mut embedder, std::slice::from_ref(text))).collect();
        let error = nmse(&alone, &expected).sqrt();
        assert!(error < 1e-5, "{name}, one by one: {error:e}");
    }
}

#[test]
fn embeddings_of_every_encoder_are_those_of_64_bits() {
    check(&one_cpu());
}

#[test]
fn the_reference_device_gives_the_same_embeddings() {
    check(&one_reference());
}

#[test]
fn scales_belong_to_the_products_of_every_encoder() {
    for name in ENCODERS {
        let (_, texts, expected) = made(name);
        let mut embedder = load(&halved_beside_scales(&read(name)), &one_cpu(), &exact()).unwrap();
        let error = nmse(&rows(&mut embedder, &texts), &expected).sqrt();
        assert!(error < 1e-5, "{name}: {error:e}");
    }
}

#[test]
fn texts_that_do_not_fit_one_run_take_several() {
    let (model, texts, expected) = made("modern-bert");
    let settings = Settings { context: Some(32), ..exact() };
    let mut embedder = load(&model, &one_cpu(), &settings).unwrap();
    let error = nmse(&rows(&mut embedder, &texts), &expected).sqrt();
    assert!(error < 1e-5, "{error:e}");
    // More texts than a run takes.
    let many: Vec<Vec<u32>> = (0..150).map(|index| texts[index % texts.len()].clone()).collect();
    let wanted: Vec<Vec<f32>> = (0..150).map(|index| expected[index % texts.len()].clone()).collect();
    let error = nmse(&rows(&mut embedder, &many), &wanted).sqrt();
    assert!(error < 1e-5, "{error:e}");
}

#[test]
fn memory_is_what_the_plan_says_and_runs_allocate_none() {
    let (model, texts, _) = made("bert");
    let blueprint = Embedder::plan(&model, &one_cpu(), &exact(), None).unwrap();
    let forecast = blueprint.forecast().unwrap();
    let bytes = |forecast: &Forecast| {
        let DeviceMemory { weights, repacked, kv, compute, .. } = forecast.devices[0];
        [weights, repacked, kv, compute]
    };
    assert_eq!(forecast.devices[0].kv, 0);
    let mut embedder = Embedder::load(blueprint, &mut |_, _| ()).unwrap();
    assert_eq!(bytes(&embedder.memory()), bytes(&forecast));
    rows(&mut embedder, &texts);
    assert_eq!(bytes(&embedder.memory()), bytes(&forecast));
}

#[test]
fn texts_that_cannot_be_embedded_are_named() {
    let (model, ..) = made("bert");
    let mut embedder = load(&model, &one_cpu(), &exact()).unwrap();
    let said =
        |texts: &[Vec<u32>], embedder: &mut Embedder| embedder.embed_tokens(texts).unwrap_err().to_string();
    let long = said(&[vec![1], vec![1; 41]], &mut embedder);
    assert_eq!(long, "text number 1 has 41 tokens, and at most 40 fit; shorten it or set a larger context");
    assert_eq!(said(&[vec![24]], &mut embedder), "token 24 is not one of the model's 24");
    assert!(matches!(embedder.embed_tokens(&[vec![]]), Err(Error::EmptyPrompt)));
    let none: [Vec<u32>; 0] = [];
    assert_eq!(embedder.embed_tokens(&none).unwrap().rows.len(), 0);
    let scores = embedder.score_tokens(&[vec![1]]).unwrap_err().to_string();
    assert_eq!(scores, "the model gives embeddings, and scores of pairs were asked for");
    let untold = embedder.embed(&["text"]).unwrap_err().to_string();
    assert!(untold.contains("the file has no tokenizer"), "{untold}");
}

#[test]
fn models_are_asked_for_what_they_make() {
    let plan = |name: &str, settings: &Settings| Blueprint::plan(&model(&read(name)), &one_cpu(), settings);
    let text = plan("bert", &exact()).unwrap_err().to_string();
    assert_eq!(text, "a bert model makes embeddings, and no text");
    let embed = |name: &str, pooling| Embedder::plan(&model(&read(name)), &one_cpu(), &exact(), pooling);
    let state = embed("mamba2", None).unwrap_err().to_string();
    assert_eq!(state, "embeddings of mamba2 models are not supported");
    let rank = embed("bert", Some(Pooling::Rank)).unwrap_err().to_string();
    assert_eq!(rank, "the model has no tensor `cls.output.weight`");
    let texts = Settings { outputs: Outputs::Texts(Pooling::Mean), ..exact() };
    assert!(Engine::load(plan("bert", &texts).unwrap(), &mut |_, _| ()).is_err());
    assert!(Embedder::load(plan("qwen3", &exact()).unwrap(), &mut |_, _| ()).is_err());
    let mut json = read("bert");
    json["keys"]["bert.pooling_type"] = 7.into();
    let unknown = try_model(&json, |_, _| {}).unwrap_err().to_string();
    assert!(unknown.starts_with("`bert.pooling_type` is 7: 0 to 4 are known"), "{unknown}");
    let mut json = read("modern-bert");
    json["keys"]["modern-bert.hidden_activation"] = "relu".into();
    let unknown = try_model(&json, |_, _| {}).unwrap_err().to_string();
    assert!(unknown.starts_with("`modern-bert.hidden_activation` is relu"), "{unknown}");
}

/// Those of Qwen 3 are probabilities.
#[test]
fn scores_of_other_classifiers_are_as_the_matrix_makes_them() {
    let mut json = read("qwen2");
    json["keys"]["qwen2.pooling_type"] = 4.into();
    json["tensors"].as_array_mut().unwrap().push(serde_json::json!(["cls.output.weight", [48, 2], 0.0, 0.2]));
    let scores = |factor: f32| {
        let model = try_model(&json, |name, values| {
            if name == "cls.output.weight" {
                values.iter_mut().for_each(|value| *value *= factor);
            }
        });
        let mut embedder = load(&model.unwrap(), &one_cpu(), &exact()).unwrap();
        embedder.score_tokens(&[vec![1, 2, 3]]).unwrap()
    };
    let doubled: Vec<Vec<f32>> =
        scores(1.0).iter().map(|row| row.iter().map(|x| 2.0 * x).collect()).collect();
    assert!(nmse(&scores(2.0), &doubled) < 1e-9);
}

/// Without a key, the mean of an encoder's tokens or a causal model's last one.
#[test]
fn any_model_that_attends_makes_embeddings() {
    let (model, tokens, _) = crate::made::made("gemma2");
    let mut embedder = load(&model, &one_cpu(), &exact()).unwrap();
    assert_eq!(embedder.pooling(), Pooling::Last);
    let all = embedder.embed_tokens(&[&tokens[..9], &tokens[..21], &tokens[..9]]).unwrap();
    let alone = embedder.embed_tokens(&[&tokens[..21]]).unwrap();
    assert_eq!((all.tokens, alone.tokens), (39, 21));
    assert!(nmse(&all.rows[1..2], &alone.rows) < 1e-9);
    assert!(nmse(&all.rows[..1], &all.rows[2..]) < 1e-9);
    assert!(nmse(&all.rows[..1], &all.rows[1..2]) > 1e-3);
}
