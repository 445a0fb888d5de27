use std::path::PathBuf;
use std::sync::Arc;

use orlop::backend::{Device, Precision};
use orlop::cpu::{CpuDevice, CpuOptions, ThreadPool};
use orlop::llm::{Blueprint, Engine, LayerChoice, LayerPlacement, Model, Settings};
use orlop::sched::Machine;
use orlop::wgpu::{WgpuDevice, WgpuOptions, adapters};

use crate::with_model::{json, prompts};

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The default model's file, fetched by asking for anything.
pub(crate) fn model_file() -> PathBuf {
    json(&["tokenize", "--json", "a"]);
    let cache = std::env::var_os("ORLOP_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| concat!(env!("CARGO_TARGET_TMPDIR"), "/cache").into());
    let mut files = cache.read_dir().unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "gguf")).unwrap()
}

pub(crate) fn model() -> Model {
    Model::open(model_file()).unwrap()
}

pub(crate) fn gpu() -> Arc<WgpuDevice> {
    gpu_with(WgpuOptions::default())
}

pub(crate) fn gpu_with(options: WgpuOptions) -> Arc<WgpuDevice> {
    let adapters = adapters(true);
    let adapter = adapters.first().expect("a Vulkan, Metal or DX12 driver; `cargo xtask test` installs one");
    WgpuDevice::with_options(adapter, &options).unwrap()
}

pub(crate) fn cpu() -> Arc<dyn Device> {
    // With activations as they are, weights are fastest as they are in the file.
    CpuDevice::with_options(
        ThreadPool::new(2).unwrap(),
        &CpuOptions { repack: false, ..CpuOptions::default() },
    )
}

/// Tokens of the first four reference prompts.
pub(crate) fn tokens() -> Vec<Vec<u32>> {
    let ids = |line: serde_json::Value| {
        line["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
    };
    prompts().into_iter().take(4).map(ids).collect()
}

/// A short context, and activations as they are on all devices.
pub(crate) fn settings(layout: LayerPlacement) -> Settings {
    Settings {
        context: Some(32),
        batch: 16,
        threads: 2,
        precision: Precision::F32,
        layout: LayerChoice::Exactly(layout),
        ..Settings::default()
    }
}

pub(crate) fn load(model: &Model, machine: &Machine, layout: LayerPlacement) -> Engine {
    Engine::load(Blueprint::plan(model, machine, &settings(layout)).unwrap(), &mut |_, _| ()).unwrap()
}

/// The tokens that an engine finds most likely behind a prompt, and the logits of each.
pub(crate) fn greedy(engine: &mut Engine, prompt: &[u32], count: usize) -> (Vec<u32>, Vec<f32>) {
    engine.truncate(0);
    let (mut tokens, mut all) = (Vec::new(), Vec::new());
    let mut next = prompt.to_vec();
    while tokens.len() < count {
        engine.feed(&next).unwrap();
        let logits = engine.last_logits().unwrap();
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as u32;
        all.extend_from_slice(logits);
        tokens.push(best);
        next = vec![best];
    }
    (tokens, all)
}

/// Mean squared error over mean square.
pub(crate) fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = || found.iter().zip(expected);
    let error: f64 = pairs().map(|(a, b)| f64::from(a - b).powi(2)).sum();
    error / pairs().map(|(_, b)| f64::from(*b).powi(2)).sum::<f64>()
}
