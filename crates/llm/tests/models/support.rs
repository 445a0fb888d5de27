//! Models, machines and measures for the tests.

use std::path::PathBuf;
use std::sync::Arc;

use orlop_backend::Device;
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_gguf::{GgufFile, GgufPart};
use orlop_llm::{Blueprint, Engine, Experts, Model, Part, RunRows, SequenceId, Settings, Synth};
use orlop_sched::Machine;
use orlop_testkit::ReferenceDevice;

/// Where a fixture is.
pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/models/fixtures").join(name)
}

/// A small model that another engine has run, and what that gave: logits behind each token.
pub(crate) fn reference(name: &str) -> (Model, Vec<u32>, Vec<Vec<f32>>) {
    let model = Model::open(fixture(&format!("{name}.gguf"))).unwrap();
    let text = std::fs::read_to_string(fixture(&format!("{name}.logits.json"))).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    (model, tokens_of(&json), logits_of(&json))
}

/// The tokens that a fixture is about.
pub(crate) fn tokens_of(json: &serde_json::Value) -> Vec<u32> {
    json["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The logits behind each of them.
pub(crate) fn logits_of(json: &serde_json::Value) -> Vec<Vec<f32>> {
    let row = |row: &serde_json::Value| -> Vec<f32> {
        row.as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap() as f32).collect()
    };
    json["logits"].as_array().unwrap().iter().map(row).collect()
}

pub(crate) fn cpu(name: &str, threads: usize) -> Arc<dyn Device> {
    CpuDevice::with_isa(name, ThreadPool::new(threads).unwrap(), orlop_cpu::Isa::detect())
}

pub(crate) fn one_cpu() -> Machine {
    Machine::new(vec![cpu("cpu", 2)]).unwrap()
}

/// As [`one_cpu`], with a device that computes every op in plain 64-bit code.
pub(crate) fn one_reference() -> Machine {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    Machine::new(vec![device]).unwrap()
}

pub(crate) fn load(model: &Model, machine: &Machine, settings: &Settings) -> Engine {
    Engine::load(Blueprint::plan(model, machine, settings).unwrap(), &mut |_, _| ()).unwrap()
}

/// Every row of logits that feeding tokens gives.
pub(crate) fn rows(engine: &mut Engine, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    let parts = [Part::all(SequenceId::FIRST, tokens)];
    let mut see = |mut run: RunRows<'_>| {
        rows.extend(run.logits()?.map(|row| row.logits.to_vec()));
        Ok(())
    };
    engine.feed_parts(&parts, &mut see).unwrap();
    rows
}

/// The logits behind the last token of each part.
pub(crate) fn together(
    engine: &mut Engine,
    parts: &[(SequenceId, &[u32])],
) -> Result<Vec<Vec<f32>>, orlop_llm::Error> {
    let parts: Vec<Part<'_>> = parts.iter().map(|(id, tokens)| Part::last(*id, tokens)).collect();
    let mut rows = vec![Vec::new(); parts.len()];
    engine.feed_parts(&parts, &mut |mut run| {
        run.logits()?.for_each(|row| rows[row.part] = row.logits.to_vec());
        Ok(())
    })?;
    Ok(rows)
}

/// The logits behind the last token that is fed.
pub(crate) fn last_row(engine: &mut Engine, tokens: &[u32]) -> Vec<f32> {
    engine.feed(tokens).unwrap();
    engine.last_logits().unwrap().to_vec()
}

/// Mean squared error over mean square.
pub(crate) fn nmse(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = || found.iter().flatten().zip(expected.iter().flatten());
    let error: f64 = pairs().map(|(a, b)| f64::from(a - b).powi(2)).sum();
    error / pairs().map(|(_, b)| f64::from(*b).powi(2)).sum::<f64>()
}

/// Tokens that a model finds most likely, one after the other.
pub(crate) fn greedy(engine: &mut Engine, prompt: &[u32], count: usize) -> Vec<u32> {
    let best = |logits: &[f32]| {
        let order = |a: &(usize, &f32), b: &(usize, &f32)| a.1.total_cmp(b.1);
        logits.iter().enumerate().max_by(order).unwrap().0 as u32
    };
    let mut tokens = vec![best(&last_row(engine, prompt))];
    while tokens.len() < count {
        let last = *tokens.last().unwrap();
        tokens.push(best(&last_row(engine, &[last])));
    }
    tokens
}

/// A model of random weights.
pub(crate) fn synthetic(synth: &Synth) -> Model {
    let part = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    Model::from_file(GgufFile::from_file(part)).unwrap()
}

/// Four layers with eight experts, of which a token uses two.
pub(crate) fn with_experts() -> Synth {
    let experts = Experts { count: 8, used: 2, hidden: 256, ..Experts::default() };
    Synth { layers: 4, width: 256, hidden: 256, experts: Some(experts), vocabulary: 64, ..Synth::default() }
}
