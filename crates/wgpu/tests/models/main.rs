//! Models of many architectures on any adapter, including software, against logits of llama.cpp.

#[allow(dead_code)] // the tests of `orlop-llm` need more of it
#[path = "../../../llm/tests/models/made.rs"]
mod made;
#[allow(dead_code)]
#[path = "../../../llm/tests/models/support.rs"]
mod support;

use std::sync::Arc;

use orlop_backend::Device;
use orlop_llm::{Blueprint, HotExperts, LayerChoice, LayerPlacement, Settings};
use orlop_sched::Machine;
use orlop_wgpu::{WgpuDevice, adapters};

use crate::made::{MODELS, exact, made};
use crate::support::{cpu, load, nmse, rows};

/// One of each kind: windows and caps, experts, sinks, latent attention, and all mixers that keep states.
const SAMPLE: [&str; 9] =
    ["llama", "gemma2", "gpt-oss", "glm4moe", "deepseek2", "jamba", "lfm2", "qwen35moe", "rwkv7"];

/// An adapter with the CPU behind it, which computes what the adapter does not.
fn machine() -> Machine {
    let adapter = adapters(true).into_iter().next();
    let adapter = adapter.expect("a Vulkan, Metal or DX12 driver; `cargo xtask test` installs one");
    let gpu: Arc<dyn Device> = WgpuDevice::new(&adapter).unwrap();
    Machine::new(vec![gpu, cpu("cpu", 2)]).unwrap()
}

/// `cargo xtask nightly` sets the variable.
#[test]
fn logits_of_many_architectures_are_those_of_llama_cpp() {
    let all = std::env::var_os("ORLOP_ALL_MODELS").is_some();
    let machine = machine();
    for name in if all { &MODELS[..] } else { &SAMPLE } {
        let (model, tokens, expected) = made(name);
        let found = rows(&mut load(&model, &machine, &exact()), &tokens);
        let error = nmse(&found, &expected).sqrt();
        assert!(error < 1e-5, "{name}: {error:e}");
    }
}

#[test]
fn hot_experts_on_the_adapter_and_cold_ones_beside_it_give_the_same_logits() {
    let machine = machine();
    let mut devices = machine.indices();
    let [gpu, host] = [devices.next().unwrap(), devices.next().unwrap()];
    for name in ["llama-experts", "deepseek2", "gpt-oss"] {
        let (model, tokens, expected) = made(name);
        let layers = model.config().layers.len();
        let routed =
            |layer: usize| model.file().tensor(&format!("blk.{layer}.ffn_gate_inp.weight")).is_some();
        let hot = HotExperts { device: gpu, experts: [0, 2].into() };
        let layout = LayerPlacement {
            experts: vec![host; layers],
            hot: (0..layers).map(|layer| routed(layer).then(|| hot.clone())).collect(),
            ..LayerPlacement::all_on(gpu, layers)
        };
        let settings = Settings { layout: LayerChoice::Exactly(layout), ..exact() };
        let planned = Blueprint::plan(&model, &machine, &settings).unwrap().forecast().unwrap();
        let mut engine = load(&model, &machine, &settings);
        let error = nmse(&rows(&mut engine, &tokens), &expected).sqrt();
        assert!(error < 1e-5, "{name}: {error:e}");
        assert_eq!(engine.memory(), planned, "{name}");
        engine.check_races().unwrap();
    }
}
