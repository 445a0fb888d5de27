//! Files, settings and tokens that are refused.

use std::sync::Arc;

use orlop_gguf::{GgufFile as Parts, GgufPart, MetadataValue, Writer};
use orlop_llm::{Blueprint, Error, LayerChoice, LayerPlacement, Model, Settings};
use orlop_sched::Machine;

use crate::support::{cpu, fixture, greedy, load, one_cpu, reference};

/// The reference model with its metadata or tensors changed.
fn changed(change: impl FnOnce(&mut Writer<'_>), leave_out: &str) -> Result<Model, Error> {
    let file = GgufPart::open(fixture("llama-dense.Q4_0.gguf")).unwrap();
    let mut writer = Writer::with_metadata(file.metadata().clone());
    for tensor in file.tensors().iter().filter(|tensor| tensor.name != leave_out) {
        writer.copy(&file, tensor).unwrap();
    }
    change(&mut writer);
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    Model::from_file(Parts::from_file(GgufPart::from_bytes(Arc::new(bytes)).unwrap()))
}

fn with(key: &str, value: impl Into<MetadataValue>) -> Result<Model, Error> {
    changed(|writer| writer.set(key, value).unwrap(), "")
}

fn draw(model: Result<Model, Error>) -> String {
    match model.and_then(|model| Blueprint::plan(&model, &one_cpu(), &Settings::default())) {
        Ok(_) => "it was drawn".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_wrong_with_a_model_is_named() {
    let cases = [
        (
            with("general.architecture", "sphinx"),
            "the architecture `sphinx` is not known; the nearest known one is `phi3`",
        ),
        (
            with("general.architecture", "clip"),
            "`clip` files read pictures or sounds for a model of text, and are not supported; use the model's own file",
        ),
        (with("general.type", "mmproj"), "`mmproj` files read pictures or sounds"),
        (with("llama.block_count", 3u32), "no tensor `blk.2.attn_norm.weight`"),
        (with("llama.block_count", 0u32), "`llama.block_count` is 0"),
        (with("llama.block_count", u32::MAX), "`llama.block_count` is 4294967295"),
        (
            with("llama.embedding_length", 128u32),
            "`token_embd.weight` is [256, 128] and should be [128, 128]",
        ),
        (with("llama.attention.head_count_kv", 3u32), "`llama.attention.head_count_kv` is 3"),
        (with("llama.rope.dimension_count", 512u32), "`llama.rope.dimension_count` is 512"),
        (with("llama.rope.dimension_count", 1u64 << 32), "`llama.rope.dimension_count` is 4294967296"),
        (with("llama.attention.key_length", 1u64 << 40), "`llama.attention.key_length` is 1099511627776"),
        (
            changed(
                |writer| {
                    for key in ["head_count", "head_count_kv", "key_length", "value_length"] {
                        writer.set(&format!("llama.attention.{key}"), 1u64 << 33).unwrap();
                    }
                },
                "",
            ),
            "`llama.attention.key_length` is 8589934592: all heads",
        ),
        (with("llama.expert_count", 2u32), "`llama.expert_used_count` is 0"),
        (with("llama.context_length", 0u32), "`llama.context_length` is 0"),
        (with("llama.vocab_size", 100u32), "`token_embd.weight` is [256, 128] and should be [256, 100]"),
        (with("llama.embedding_length", "wide"), "llama.embedding_length"),
        (changed(|_| (), "blk.1.ffn_down.weight"), "no tensor `blk.1.ffn_down.weight`"),
        (
            changed(|writer| drop(writer.metadata_mut().remove("llama.embedding_length")), ""),
            "llama.embedding_length",
        ),
    ];
    for (model, expected) in cases {
        let said = draw(model);
        assert!(said.contains(expected), "{said}, and not {expected}");
    }
}

#[test]
fn bad_tokens_and_full_contexts_change_nothing() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let settings = Settings { context: Some(32), ..Settings::default() };
    let expected = greedy(&mut load(&model, &one_cpu(), &settings), &tokens, 4);
    let mut engine = load(&model, &one_cpu(), &settings);
    assert!(matches!(engine.feed(&[]), Err(Error::EmptyPrompt)));
    assert!(matches!(engine.feed(&[1, 128]), Err(Error::UnknownToken { token: 128, vocabulary: 128 })));
    let long = [tokens.clone(), tokens.clone()].concat();
    let full = engine.feed(&long);
    assert!(matches!(full, Err(Error::ContextFull { tokens: 48, context: 32, used: 0 })), "{full:?}");
    assert!(engine.is_empty());
    assert_eq!(greedy(&mut engine, &tokens, 4), expected);
    assert!(matches!(engine.feed(&tokens), Err(Error::ContextFull { used: 27, .. })));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let (model, ..) = reference("llama-dense.Q4_0");
    let machine = one_cpu();
    let device = machine.find("cpu").unwrap();
    let layers = model.config().layers.len();
    let other = Machine::new(vec![cpu("a", 1), cpu("b", 1)]).unwrap().find("b").unwrap();
    let here = LayerPlacement::all_on(device, layers);
    let elsewhere = [
        LayerPlacement { input: other, ..here.clone() },
        LayerPlacement { output: other, ..here.clone() },
        LayerPlacement { layers: vec![other; layers], ..here.clone() },
        LayerPlacement { caches: vec![other; layers], ..here },
    ];
    let elsewhere =
        elsewhere.map(|layout| Settings { layout: LayerChoice::Exactly(layout), ..Settings::default() });
    let refused = [
        Settings { batch: 0, ..Settings::default() },
        Settings { context: Some(0), ..Settings::default() },
        Settings { context: Some(1 << 40), ..Settings::default() },
        Settings { layout: LayerChoice::Exactly(LayerPlacement::all_on(device, 1)), ..Settings::default() },
    ];
    for settings in refused.into_iter().chain(elsewhere) {
        let drawn = Blueprint::plan(&model, &machine, &settings);
        assert!(matches!(drawn, Err(Error::BadSetting { .. })), "{drawn:?}");
    }
}

#[test]
fn a_context_length_that_no_memory_holds_gives_way_to_the_largest_that_fits() {
    let model = with("llama.context_length", 1u64 << 40).unwrap();
    let machine = one_cpu();
    let device = machine.find("cpu").unwrap();
    let settings = Settings { budgets: [(device, 100 << 20)].into(), ..Settings::default() };
    let drawn = Blueprint::plan(&model, &machine, &settings).unwrap();
    let context = drawn.context();
    assert!(1000 < context && context < 1 << 31, "{context}");
    let settings = Settings { context: Some(context + 1), ..settings };
    let refused = Blueprint::plan(&model, &machine, &settings);
    assert!(
        matches!(refused, Err(Error::DoesNotFit { largest: Some(largest), .. }) if largest == context),
        "{refused:?}"
    );
}
