//! Models over several devices.

use std::sync::Arc;

use orlop_backend::{Device, Link};
use orlop_graph::Op;
use orlop_llm::{LayerChoice, LayerPlacement, Settings};
use orlop_sched::{Machine, PlacementReason};
use orlop_testkit::devices::TestDevice;

use crate::made::{exact, made};
use crate::support::{cpu, greedy, load, nmse, one_cpu, reference, rows};

/// Devices with memory of their own and queues beside the host.
fn two() -> Machine {
    let device = |name: &str| -> Arc<dyn Device> {
        TestDevice::builder(cpu(&format!("{name} kernels"), 1)).name(name).asynchronous(true).build()
    };
    Machine::new(vec![device("a"), device("b")]).unwrap()
}

#[test]
fn any_division_of_the_layers_gives_the_same_text() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let expected = greedy(&mut load(&model, &one_cpu(), &Settings::default()), &tokens, 24);
    let machine = two();
    let [a, b] = [machine.find("a").unwrap(), machine.find("b").unwrap()];
    let layers = model.config().layers.len();
    for [first, second] in [[a, b], [b, a]] {
        let half = LayerPlacement::all_on(first, layers).with_layers(0..layers / 2, 1, second);
        let every_second = LayerPlacement::all_on(first, layers).with_layers(1..layers, 2, second);
        let caches_apart =
            LayerPlacement { caches: vec![second; layers], ..LayerPlacement::all_on(first, layers) };
        let output_apart = LayerPlacement { output: second, ..LayerPlacement::all_on(first, layers) };
        for layout in [half, every_second, caches_apart, output_apart] {
            let settings = Settings { layout: LayerChoice::Exactly(layout.clone()), ..Settings::default() };
            let mut engine = load(&model, &machine, &settings);
            assert_eq!(greedy(&mut engine, &tokens, 24), expected, "{layout:?}");
        }
    }
}

#[test]
fn windows_and_states_work_on_several_devices() {
    let machine = two();
    let [a, b] = [machine.find("a").unwrap(), machine.find("b").unwrap()];
    for name in ["gemma3-scaled", "mamba2"] {
        let (model, tokens, _) = made(name);
        let layers = model.config().layers.len();
        let every_second = LayerPlacement::all_on(a, layers).with_layers(1..layers, 2, b);
        let caches_apart = LayerPlacement { caches: vec![b; layers], ..LayerPlacement::all_on(a, layers) };
        for sequences in [1, 2] {
            let exact = Settings { sequences, ..exact() };
            let expected = rows(&mut load(&model, &one_cpu(), &exact), &tokens);
            for layout in [every_second.clone(), caches_apart.clone()] {
                let settings = Settings { layout: LayerChoice::Exactly(layout), ..exact.clone() };
                let mut engine = load(&model, &machine, &settings);
                assert!(nmse(&rows(&mut engine, &tokens), &expected) < 1e-9, "{name}");
                engine.truncate(0);
                assert!(nmse(&rows(&mut engine, &tokens), &expected) < 1e-9, "{name}, again");
            }
        }
    }
}

#[test]
fn the_last_layers_go_to_the_first_device() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let machine = two();
    let expected = greedy(&mut load(&model, &one_cpu(), &Settings::default()), &tokens, 8);
    for count in 0..=model.config().layers.len() {
        let settings = Settings { layout: LayerChoice::LastLayers(count), ..Settings::default() };
        let mut engine = load(&model, &machine, &settings);
        assert_eq!(engine.memory().layers[0], count);
        assert_eq!(greedy(&mut engine, &tokens, 8), expected, "{count} layers");
    }
}

/// Layers lie on the CPU in its own layout, and a device beside it that is much faster takes what a batch computes with
/// them: it gets the weights from the file, keeps none of them.
#[test]
fn a_fast_device_computes_batches_with_weights_that_lie_elsewhere() {
    let fast = Link { bytes_per_second: 1e15, latency_seconds: 0.0 };
    // By the numbers, nothing should be brought over this one.
    let slow = Link { bytes_per_second: 1.0, latency_seconds: 1.0 };
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let expected = rows(&mut load(&model, &one_cpu(), &exact()), &tokens);
    let layers = model.config().layers.len();
    for (link, streams) in [(fast, true), (slow, false)] {
        let device = TestDevice::builder(cpu("kernels", 1)).name("a").asynchronous(true).wants_offload(true);
        let device = device.flops(1e18).bytes_per_second(1e18).host_link(link).build();
        let machine = Machine::new(vec![device as Arc<dyn Device>, cpu("cpu", 1)]).unwrap();
        let [first, last] = ["a", "cpu"].map(|name| machine.find(name).unwrap());
        let layout = LayerPlacement::all_on(first, layers).with_layers(0..layers, 1, last);
        let settings = Settings { layout: LayerChoice::Exactly(layout), ..exact() };
        let mut engine = load(&model, &machine, &settings);
        let (graph, planned) = engine.blueprint().planned_batch();
        let (graph, planned) = (graph.clone(), Arc::clone(planned));
        let products = graph.node_ids().filter(|id| graph.node(*id).op == Op::MulMat);
        let why = |id| planned.placement().node(id).why;
        let wanted = products.filter(|id| matches!(why(*id), PlacementReason::Offloaded(_))).count();
        // q, k, v, o, gate, up and down.
        assert_eq!(wanted, if streams { 7 * layers } else { 0 });
        let resident = planned.resident_bytes(first);
        assert!(resident < 64 << 10, "{resident} bytes of weights stay");
        engine.check_races().unwrap();
        for again in [false, true] {
            engine.truncate(0);
            assert!(nmse(&rows(&mut engine, &tokens), &expected) < 1e-9, "streams {streams}, again {again}");
        }
        assert_eq!(engine.memory(), engine.blueprint().forecast().unwrap());
    }
}
