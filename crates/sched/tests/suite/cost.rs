use std::sync::Arc;

use orlop_alloc::Externals;
use orlop_backend::Link;
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{
    Constraints, CostOptions, Machine, Placement, PlacementReason, Session, SessionOptions, constraints,
    estimate, place_by_cost, place_by_rules, split,
};
use orlop_testkit::devices::{TestDevice, VirtualClock};
use orlop_testkit::{Random, generate};

use crate::support::{get, machine, memory_of, private, run, set, stored};

/// Devices of random speed.
fn random_machine(seed: u64) -> (Vec<Arc<TestDevice>>, Machine) {
    let count = 2 + Random::nth(seed, 1) % 3;
    let device = |index: u64| {
        let salt = Random::nth(seed, 20 + index);
        let power = |shift: u64, base: f64| base * 10f64.powi((salt >> shift) as i32 & 3);
        private(&format!("d{index}"))
            .flops(power(0, 1e9))
            .bytes_per_second(power(2, 1e9))
            .launch_seconds(power(4, 1e-7))
            .host_link(Link { bytes_per_second: power(6, 1e8), latency_seconds: power(8, 1e-7) })
            .build()
    };
    let devices: Vec<_> = (0..count).map(device).collect();
    let machine = machine(&devices);
    (devices, machine)
}

fn seconds(graph: &Graph, machine: &Machine, constraints: &Constraints, placement: &Placement) -> f64 {
    estimate(graph, machine, &split(graph, machine, constraints, placement)).unwrap()
}

#[test]
fn cost_is_never_worse_than_rules() {
    let mut better = 0;
    for seed in 0..200 {
        let (graph, _) = generate::graph(seed + 9_000, &generate::Size { moves: 16, elements: 200 });
        let (devices, machine) = random_machine(seed);
        let mut constraints = Constraints::default();
        for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
            let at = Random::nth(seed, id.index() as u64) as usize % devices.len();
            constraints.pinned.insert(id, memory_of(&*devices[at]));
        }
        let resident = machine.indices().map(|device| (device, Random::nth(seed, 99) % 4_000)).collect();
        let options = CostOptions { resident, ..CostOptions::default() };
        let rules = place_by_rules(&graph, &machine, &constraints).unwrap();
        let cost = place_by_cost(&graph, &machine, &constraints, &options).unwrap();
        assert_eq!(cost, place_by_cost(&graph, &machine, &constraints, &options).unwrap());
        let [by_rules, by_cost] =
            [&rules, &cost].map(|placement| seconds(&graph, &machine, &constraints, placement));
        assert!(by_cost <= by_rules, "graph {seed}: {by_cost} after {by_rules}");
        better += usize::from(by_cost < by_rules);
    }
    assert!(better > 20, "{better}");
}

/// Products with weights that lie on two devices in turn.
struct Layers {
    graph: Graph,
    x: TensorId,
    weights: Vec<TensorId>,
    y: TensorId,
}

fn layers(count: usize) -> Layers {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let mut h = x;
    let mut weights = Vec::new();
    for layer in 0..count {
        let w = b.weight(&format!("w{layer}"), DType::F32, &[4, 4]);
        let normed = b.rms_norm(h, 1e-5);
        let product = b.mul_mat(w, normed);
        let gated = b.silu(product);
        h = b.add(h, gated);
        weights.push(w);
    }
    b.output(h);
    Layers { graph: b.build().unwrap(), x, weights, y: h }
}

#[test]
fn weights_that_may_move_make_alternating_layers_faster() {
    let clock = VirtualClock::new();
    let step = 1e-5;
    let link = Link { bytes_per_second: 1e9, latency_seconds: 1e-3 };
    let devices = ["g", "c"].map(|name| {
        private(name)
            .asynchronous(true)
            .launch_seconds(step)
            .host_link(link)
            .clock(&clock, move |_, _| step)
            .build()
    });
    let machine = machine(&devices);
    let Layers { graph, x, weights, y } = layers(8);
    let mut given = Externals::new();
    for (layer, w) in weights.iter().enumerate() {
        let values: Vec<f32> = (0..16).map(|index| (index % 5) as f32 * 0.1).collect();
        given.insert(*w, stored(&*devices[layer % 2], &graph, *w, &values));
    }
    let constraints = constraints(&graph, &given);
    let rules = place_by_rules(&graph, &machine, &constraints).unwrap();
    let stay = place_by_cost(&graph, &machine, &constraints, &CostOptions::default()).unwrap();
    assert!(split(&graph, &machine, &constraints, &stay).transfers.iter().all(|copy| !copy.constant));
    let resident = machine.indices().map(|device| (device, 1 << 20)).collect();
    let options = CostOptions { resident, ..CostOptions::default() };
    let cost = place_by_cost(&graph, &machine, &constraints, &options).unwrap();
    assert!(
        cost.nodes()
            .iter()
            .any(|placed| matches!(placed.why, PlacementReason::Cheaper { saved } if saved > 0))
    );
    let mut times = Vec::new();
    let mut results = Vec::new();
    for placement in [rules, cost] {
        let estimated = seconds(&graph, &machine, &constraints, &placement);
        let mut session = Session::new(machine.clone(), SessionOptions::default()).unwrap();
        let plan = session.prepare_placed(&graph, &given, &constraints, placement).unwrap();
        clock.reset();
        set(&mut session, plan, x, &[1.0, 2.0, 3.0, 4.0]);
        run(&mut session, plan);
        results.push(get(&session, plan, y, 4));
        times.push((estimated, clock.makespan()));
    }
    assert_eq!(results[0], results[1]);
    let [(rules_estimate, rules_time), (cost_estimate, cost_time)] = times[..] else { panic!("{times:?}") };
    assert!(cost_estimate < rules_estimate && cost_time < rules_time, "{times:?}");
    // Copies take a hundred times as long as steps here, and none are left.
    assert!(cost_time < rules_time / 2.0, "{times:?}");
}
