use std::sync::Arc;

use orlop::backend::Device;
use orlop::llm::LayerPlacement;
use orlop::sched::Machine;
use orlop::wgpu::WgpuOptions;
use orlop_testkit::guard::Guarded;

use crate::support::{cpu, gpu, gpu_with, greedy, load, model, nmse, tokens};

/// All memory that a split writes is read back before and after it, red zones between tensors included, and every plan
/// is checked for races.
#[test]
fn any_division_of_the_layers_gives_the_logits_and_tokens_of_the_cpu() {
    let model = model();
    let layers = model.config().layers.len();
    let alone = Machine::new([cpu()]).unwrap();
    let mut reference = load(&model, &alone, LayerPlacement::all_on(alone.indices().next().unwrap(), layers));
    let expected: Vec<_> = tokens().iter().map(|prompt| greedy(&mut reference, prompt, 16)).collect();
    drop(reference);

    let guarded = Guarded::by_program(gpu());
    let machine = Machine::new([Arc::clone(&guarded) as Arc<dyn Device>, cpu()]).unwrap();
    let [on_gpu, on_cpu] = [0, 1].map(|at| machine.indices().nth(at).unwrap());
    let whole = LayerPlacement::all_on(on_gpu, layers);
    let half = LayerPlacement::all_on(on_cpu, layers).with_layers(layers / 2..layers, 1, on_gpu);
    let every_second = LayerPlacement::all_on(on_cpu, layers).with_layers(0..layers, 2, on_gpu);
    for (name, layout, count) in [
        ("all", whole, layers),
        ("half", half, layers / 2),
        ("every second", every_second, layers.div_ceil(2)),
    ] {
        let mut engine = load(&model, &machine, layout);
        let forecast = engine.blueprint().forecast().unwrap();
        assert_eq!(engine.memory().layers[0], count, "{name}");
        for (prompt, (tokens, logits)) in tokens().iter().zip(&expected) {
            let (found, found_logits) = greedy(&mut engine, prompt, 16);
            let error = nmse(&found_logits, logits);
            println!("{name} layers on the GPU, {} tokens: error {error:.2e}", prompt.len());
            assert_eq!(found, *tokens, "{name}");
            assert!(error <= 1e-3, "{name}: {error}");
        }
        engine.check_races().unwrap();
        assert_eq!(guarded.trespasses(), []);
        assert_eq!(engine.memory().devices, forecast.devices, "{name}");
    }
}

#[test]
fn matrices_larger_than_a_binding_stay_on_the_cpu_and_the_rest_comes_in_chunks() {
    let model = model();
    let layers = model.config().layers.len();
    let alone = Machine::new([cpu()]).unwrap();
    let mut reference = load(&model, &alone, LayerPlacement::all_on(alone.indices().next().unwrap(), layers));
    let (tokens, logits) = greedy(&mut reference, &tokens()[0], 3);
    drop(reference);

    let narrow = gpu_with(WgpuOptions { max_binding: Some(1 << 20), ..WgpuOptions::default() });
    let machine = Machine::new([Arc::clone(&narrow) as Arc<dyn Device>, cpu()]).unwrap();
    let mut engine =
        load(&model, &machine, LayerPlacement::all_on(machine.indices().next().unwrap(), layers));
    let (found, found_logits) = greedy(&mut engine, &crate::support::tokens()[0], 3);
    assert_eq!(found, tokens);
    assert!(nmse(&found_logits, &logits) <= 1e-3);
    let [on_gpu, on_cpu] = [0, 1].map(|at| engine.memory().devices[at].clone());
    assert_eq!(narrow.tensor_bytes(), on_gpu.total());
    // The embedding table, which is also the output matrix.
    assert!(on_cpu.weights + on_cpu.repacked >= 16 << 20, "{on_cpu:?}");
    assert!(on_gpu.weights >= 60 << 20, "{on_gpu:?}");
}
