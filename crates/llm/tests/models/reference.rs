//! Small models against logits of llama.cpp, which adds biases of feed-forward parts before it multiplies with scales: the models
//! that it ran had those biases divided by the scales.

use orlop_backend::Precision;
use orlop_graph::DType;
use orlop_llm::{CacheTypes, Outputs, Settings};

use crate::support::{last_row, load, nmse, one_cpu, reference, rows};

const MODELS: [&str; 2] = ["llama-dense.Q4_0", "llama-dense.Q4_K_M"];

fn all() -> Settings {
    Settings { outputs: Outputs::All, ..Settings::default() }
}

#[test]
fn logits_are_those_of_another_engine() {
    for name in MODELS {
        let (model, tokens, expected) = reference(name);
        let found = rows(&mut load(&model, &one_cpu(), &all()), &tokens);
        let error = nmse(&found, &expected);
        assert!(error < 5e-3, "{name}: {error:e}");
    }
}

#[test]
fn batches_of_any_size_give_the_same_logits() {
    let (model, tokens, _) = reference(MODELS[0]);
    let exact =
        Settings { precision: Precision::F32, cache: CacheTypes { k: DType::F32, v: DType::F32 }, ..all() };
    let whole = rows(&mut load(&model, &one_cpu(), &exact), &tokens);
    for batch in [1, 2, 7, 23] {
        let settings = Settings { batch, ..exact.clone() };
        let error = nmse(&rows(&mut load(&model, &one_cpu(), &settings), &tokens), &whole);
        assert!(error < 1e-9, "batches of {batch}: {error:e}");
    }
}

#[test]
fn logits_of_all_tokens_can_be_had_from_a_model_planned_for_the_last_ones() {
    let (model, tokens, _) = reference(MODELS[0]);
    let every =
        rows(&mut load(&model, &one_cpu(), &Settings { precision: Precision::F32, ..all() }), &tokens);
    let exact = Settings { precision: Precision::F32, ..Settings::default() };
    let mut engine = load(&model, &one_cpu(), &exact);
    let last = last_row(&mut engine, &tokens);
    assert!(nmse(&[last], &every[tokens.len() - 1..]) < 1e-9);
    // In the first run, which has a graph of its own, and later.
    for mut engine in [engine, load(&model, &one_cpu(), &exact)] {
        engine.truncate(0);
        assert!(nmse(&rows(&mut engine, &tokens), &every) < 1e-9);
    }
}

#[test]
fn caches_of_every_type_are_close() {
    let (model, tokens, expected) = reference(MODELS[0]);
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q8_0] {
        let settings = Settings { cache: CacheTypes { k: dtype, v: dtype }, ..all() };
        let error = nmse(&rows(&mut load(&model, &one_cpu(), &settings), &tokens), &expected);
        assert!(error < 5e-3, "{dtype}: {error:e}");
    }
}

#[test]
fn what_is_forgotten_leaves_no_trace() {
    let (model, tokens, _) = reference(MODELS[0]);
    let mut engine = load(&model, &one_cpu(), &Settings::default());
    let fresh = last_row(&mut engine, &tokens);
    engine.truncate(5);
    assert_eq!(engine.len(), 5);
    let again = last_row(&mut engine, &tokens[5..]);
    assert!(nmse(&[again], &[fresh]) < 1e-6);
}
