//! What must hold for any bytes as an adapter: they are refused, or the model runs with them. The fuzz target and a bounded test
//! share it.

use std::sync::Arc;

use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_gguf::{GgufFile, GgufPart};
use orlop_llm::{Blueprint, Engine, Error, LoraAdapter, Model, Settings, Synth};
use orlop_sched::Machine;

/// A small model and a machine for it.
///
/// # Panics
/// If there is no thread.
pub(crate) fn base() -> (Model, Machine) {
    let synth = Synth { vocabulary: 300, layers: 1, context: 64, ..Synth::default() };
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().expect("a model"))).expect("a file");
    let model = Model::from_file(GgufFile::from_file(file)).expect("a model");
    let pool = ThreadPool::new(1).expect("a thread");
    (model, Machine::new(vec![CpuDevice::new(pool) as _]).expect("a machine"))
}

/// Adds bytes as an adapter, and feeds a few tokens.
///
/// # Panics
/// If the model does not run with an adapter that it has taken.
pub(crate) fn add(base: &Model, machine: &Machine, bytes: &[u8]) -> Result<(), Error> {
    let file = GgufFile::from_file(GgufPart::from_bytes(Arc::new(bytes.to_vec()))?);
    let adapted = base.with_adapters(&[LoraAdapter::from_file(file)?])?;
    let blueprint = Blueprint::plan(&adapted, machine, &Settings::default())?;
    let mut engine = Engine::load(blueprint, &mut |_, _| ())?;
    engine.feed(&[1, 70, 299]).expect("a planned model runs");
    assert_eq!(engine.last_logits().expect("logits").len(), 300);
    Ok(())
}
