//! Generated transformers with their layers on two devices: against the oracle, and against the clock.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Device, DeviceFacts, Link, RunOptions};
use orlop_graph::{Graph, TensorId};
use orlop_sched::{
    Constraints, CostOptions, DeviceId, DeviceSpeeds, Machine, Placement, Session, SessionOptions,
    constraints, estimate, place_by_cost, place_by_rules, split,
};
use orlop_testkit::devices::{TestDevice, TestDeviceBuilder, VirtualClock};
use orlop_testkit::generate::{self, BlockSize, ExpertShape};
use orlop_testkit::{Feeds, Random, ReferenceDevice, kept};

use crate::equality::packed;
use crate::oracle::{Cut, cut};
use crate::support::{machine, memory_of, private};

const LAYERS: usize = 6;

/// Dense ones and mixtures of experts.
fn models() -> Vec<(&'static str, Graph, Feeds)> {
    let experts = Some(ExpertShape { count: 4, used: 2 });
    let sizes = [("dense", BlockSize::default()), ("experts", BlockSize { experts, ..BlockSize::default() })];
    sizes
        .map(|(name, size)| {
            let (graph, feeds) = generate::blocks(&size, LAYERS).unwrap();
            (name, graph, feeds)
        })
        .into()
}

/// The device of a tensor by the layer that its name begins with.
type Layout = (&'static str, fn(usize) -> usize);

const LAYOUTS: [Layout; 4] = [
    ("first half on the first", |layer| 2 * layer / LAYERS),
    ("first half on the second", |layer| 1 - 2 * layer / LAYERS),
    ("even ones on the first", |layer| layer % 2),
    ("even ones on the second", |layer| 1 - layer % 2),
];

fn externals(graph: &Graph, feeds: &Feeds, devices: &[Arc<TestDevice>], at: fn(usize) -> usize) -> Externals {
    let mut externals = Externals::new();
    for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
        let tensor = graph.tensor(id);
        let layer: usize = tensor.name.split('.').nth(1).unwrap().parse().unwrap();
        let set = [SetTensor::new(tensor.name.as_str(), tensor.desc)];
        let set = TensorSet::allocate(&memory_of(&*devices[at(layer)]), &set).unwrap();
        if let Some((_, bytes)) = feeds.iter().find(|(fed, _)| *fed == id) {
            set.tensors()[0].set(0, bytes).unwrap();
        }
        externals.insert(id, set.tensors()[0].clone());
    }
    externals
}

#[test]
fn rules_make_no_more_splits_and_copy_no_more_bytes_than_ggmls() {
    for host_last in [false, true] {
        let devices =
            [private("g").build(), private("c").host_visible(host_last).reads_host(host_last).build()];
        let machine = machine(&devices);
        for (model, graph, feeds) in models() {
            for (layout, at) in LAYOUTS {
                let constraints = constraints(&graph, &externals(&graph, &feeds, &devices, at));
                let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
                let schedule = split(&graph, &machine, &constraints, &placement);
                let Cut { splits, bytes } = cut(&graph, &machine, &constraints);
                let ours = (schedule.splits.len(), schedule.copied_bytes());
                assert!(splits >= 2 && bytes > 0, "the oracle cuts");
                assert!(ours.0 <= splits, "{model}, {layout}: {ours:?} against {splits} splits");
                assert!(ours.1 <= bytes, "{model}, {layout}: {ours:?} against {bytes} bytes");
            }
        }
    }
}

/// A device with a clock that counts what its facts say.
fn clocked(builder: TestDeviceBuilder, facts: DeviceFacts, clock: &VirtualClock) -> Arc<TestDevice> {
    let speeds = DeviceSpeeds::stated(&facts);
    let DeviceFacts { flops, bytes_per_second, launch_seconds, host_link, .. } = facts;
    let seconds = move |step: &orlop_backend::Step, graph: &Graph| -> f64 {
        step.nodes.iter().map(|node| speeds.node_seconds(graph, *node)).sum()
    };
    builder
        .flops(flops)
        .bytes_per_second(bytes_per_second)
        .launch_seconds(launch_seconds)
        .host_link(host_link)
        .clock(clock, seconds)
        .build()
}

/// Seconds of one run on the virtual clock, and what it gave.
fn makespan(
    clock: &VirtualClock,
    machine: &Machine,
    graph: &Graph,
    feeds: &Feeds,
    externals: &Externals,
    placed: (&Constraints, Placement),
) -> (f64, Vec<(TensorId, Vec<u8>)>) {
    let mut session = Session::new(machine.clone(), SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(graph, externals, placed.0, placed.1).unwrap();
    for (id, bytes) in
        feeds.iter().filter(|(id, _)| graph.root_leaf(*id).is_some_and(|leaf| !leaf.is_external()))
    {
        session.set(plan, *id, bytes).unwrap();
    }
    clock.reset();
    session.run(plan, &RunOptions::default()).unwrap();
    let seconds = clock.makespan();
    let read = |id: TensorId| {
        let mut bytes = vec![0; graph.tensor(id).desc.bytes() as usize];
        session.get(plan, id, &mut bytes).unwrap();
        (id, packed(graph, id, &bytes))
    };
    (seconds, graph.results().into_iter().map(read).collect())
}

#[test]
fn cost_takes_less_time_than_rules_on_transformers() {
    let reference = ReferenceDevice::new().facts();
    let link = Link { bytes_per_second: 1e8, latency_seconds: 1e-5 };
    let fast = DeviceFacts {
        flops: 1e10,
        bytes_per_second: 1e10,
        launch_seconds: 2e-6,
        host_link: link,
        ..reference.clone()
    };
    let slow =
        DeviceFacts { flops: 1e9, bytes_per_second: 2e9, launch_seconds: 1e-6, host_link: link, ..reference };
    let clock = VirtualClock::new();
    let devices = [("g", fast), ("c", slow)]
        .map(|(name, facts)| clocked(private(name).asynchronous(true), facts, &clock));
    let machine = machine(&devices);
    for (model, graph, feeds) in models() {
        let weights: u64 = graph
            .leaves()
            .filter(|(_, leaf)| leaf.is_external())
            .map(|(id, _)| graph.tensor(id).desc.bytes())
            .sum();
        let resident: HashMap<DeviceId, u64> =
            machine.indices().map(|device| (device, weights / 4)).collect();
        let options = CostOptions { resident, ..CostOptions::default() };
        for (layout, at) in LAYOUTS {
            let run = |placement: &dyn Fn(&Constraints) -> Placement| {
                let externals = externals(&graph, &feeds, &devices, at);
                let constraints = constraints(&graph, &externals);
                let placement = placement(&constraints);
                let schedule = split(&graph, &machine, &constraints, &placement);
                let estimated = estimate(&graph, &machine, &schedule).unwrap();
                let (seconds, results) =
                    makespan(&clock, &machine, &graph, &feeds, &externals, (&constraints, placement));
                assert!((seconds - estimated).abs() < 1e-9, "{model}, {layout}: {seconds} for {estimated}");
                (seconds, results)
            };
            let rules = run(&|constraints| place_by_rules(&graph, &machine, constraints).unwrap());
            let cost = run(&|constraints| place_by_cost(&graph, &machine, constraints, &options).unwrap());
            assert_eq!(rules.1, cost.1);
            assert!(cost.0 < 0.95 * rules.0, "{model}, {layout}: {} after {}", cost.0, rules.0);
        }
    }
}

#[test]
fn cost_never_takes_more_time_than_rules() {
    let mut better = 0;
    for seed in 0..120 {
        let (graph, feeds) = generate::graph(seed + 40_000, &generate::Size { moves: 14, elements: 200 });
        let clock = VirtualClock::new();
        let device = |index: u64| {
            let salt = Random::nth(seed, 20 + index);
            let power = |shift: u64, base: f64| base * 10f64.powi((salt >> shift) as i32 & 3);
            let facts = DeviceFacts {
                flops: power(0, 1e8),
                bytes_per_second: power(2, 1e9),
                launch_seconds: power(4, 1e-7),
                host_link: Link { bytes_per_second: power(6, 1e8), latency_seconds: power(8, 1e-7) },
                ..ReferenceDevice::new().facts()
            };
            clocked(private(&format!("d{index}")).asynchronous(salt & 1024 != 0), facts, &clock)
        };
        let devices: Vec<_> = (0..2 + Random::nth(seed, 1) % 3).map(device).collect();
        let machine = machine(&devices);
        let resident = machine.indices().map(|device| (device, Random::nth(seed, 99) % 4_000)).collect();
        let options = CostOptions { resident, effort: 200 };
        let run = |by_cost: bool| {
            let mut externals = Externals::new();
            for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
                let at = Random::nth(seed, id.index() as u64) as usize % devices.len();
                let tensor = graph.tensor(id);
                let set = [SetTensor::new(tensor.name.as_str(), tensor.desc)];
                let set = TensorSet::allocate(&memory_of(&*devices[at]), &set).unwrap();
                if let Some((_, bytes)) = feeds.iter().find(|(fed, _)| *fed == id) {
                    set.tensors()[0].set(0, bytes).unwrap();
                }
                externals.insert(id, set.tensors()[0].clone());
            }
            let constraints = constraints(&graph, &externals);
            let placement = match by_cost {
                true => place_by_cost(&graph, &machine, &constraints, &options).unwrap(),
                false => place_by_rules(&graph, &machine, &constraints).unwrap(),
            };
            makespan(&clock, &machine, &graph, &feeds, &externals, (&constraints, placement))
        };
        let (rules, cost) = (run(false), run(true));
        assert!(rules.1 == cost.1, "graph {seed}");
        assert!(cost.0 <= rules.0 + 1e-12, "graph {seed}: {} after {}", cost.0, rules.0);
        better += usize::from(cost.0 < rules.0);
        assert!(!kept(&graph).is_empty());
    }
    assert!(better > 10, "{better}");
}
