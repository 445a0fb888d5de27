use orlop::gguf::{GgufPart, MetadataValue, Writer};
use orlop::llm::Synth;

use crate::support::Folder;
use crate::with_model::{default_model, json, orlop};

/// A tiny model whose file recommends a value.
fn model(folder: &Folder, key: &str, value: impl Into<MetadataValue>) -> String {
    let plain = folder.path("plain.gguf");
    let tiny = Synth { layers: 2, width: 64, heads: 2, kv_heads: 1, key: 32, value: 32, ..Synth::default() };
    Synth { hidden: 128, vocabulary: 300, context: 128, ..tiny }.create(&plain, &mut |_, _| ()).unwrap();
    let part = GgufPart::open(&plain).unwrap();
    let mut writer = Writer::copy_of(&part).unwrap();
    writer.set(key, value).unwrap();
    let path = folder.path("model.gguf");
    writer.write(&mut std::fs::File::create(&path).unwrap()).unwrap();
    path
}

fn text(arguments: &[&str]) -> String {
    let fixed = ["run", "--json", "-n", "24", "Once upon a time"];
    json(&[&fixed[..], arguments].concat())["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_file_recommends_how_to_sample_and_flags_override_it() {
    let folder = Folder::new();
    let greedy = model(&folder, "general.sampling.temp", 0.0f32);
    assert_eq!(text(&["-m", &greedy, "-s", "1"]), text(&["-m", &greedy, "-s", "2"]));
    let sampled = |seed| text(&["-m", &greedy, "-s", seed, "--temp", "1"]);
    assert_ne!(sampled("1"), sampled("2"));
}

#[test]
fn a_recommendation_that_makes_no_sense_is_an_error_with_its_key() {
    let folder = Folder::new();
    let bad = model(&folder, "general.sampling.top_p", 1.5f32);
    let said = orlop(&["run", "-m", &bad, "-n", "1", "Hello"]).refusal(2);
    assert!(said.contains("`general.sampling.top_p` is 1.5"), "{said}");
}

#[test]
fn the_default_model_samples_as_its_authors_recommend() {
    let seed = ["-s", "7"];
    let with = |more: &[&str]| text(&[&seed[..], more].concat());
    assert_eq!(with(&[]), with(&["--temp", "0.2", "--top-p", "0.9"]));
    assert_ne!(with(&[]), with(&["-m", &default_model()]), "the file alone recommends nothing");
}
