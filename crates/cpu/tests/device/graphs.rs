use std::sync::Arc;

use orlop_alloc::{PlanOptions, Sharing, StepOrder};
use orlop_backend::{Device, LowerOptions, Precision};
use orlop_plan::{SolveOptions, Strategy};
use orlop_sched::{DeviceId, Machine, Session, SessionOptions};
use orlop_testkit::guard::Guarded;
use orlop_testkit::{
    Feeds, PlannedOptions, UnplannedOptions, generate, kept, run_in, run_planned, run_unplanned_with,
};

use crate::{device, isas, lower, run};

const GRAPHS: u64 = 510;

pub(crate) fn planned(threads: usize, strategy: Strategy, sharing: Sharing) -> PlannedOptions {
    let plan = PlanOptions { search: SolveOptions::with(strategy), sharing };
    let session = SessionOptions { lower: lower(threads), plan, ..SessionOptions::default() };
    PlannedOptions { session, run: run(threads), ..PlannedOptions::default() }
}

/// What is kept after a run without any plan, one step a node.
pub(crate) fn unplanned(device: &Arc<dyn Device>, graph: &orlop_graph::Graph, feeds: &Feeds) -> Feeds {
    let lower = LowerOptions { fusion: false, ..lower(1) };
    let options = UnplannedOptions { lower, run: run(1), ..UnplannedOptions::default() };
    let outputs = run_unplanned_with(device, graph, feeds, &options).unwrap();
    kept(graph).into_iter().map(|id| (id, outputs.bytes(id).unwrap())).collect()
}

#[test]
fn random_graphs_give_the_same_values_however_they_are_planned() {
    let isas: Vec<_> = isas().collect();
    for seed in 0..GRAPHS {
        let device: Arc<dyn Device> = device(isas[seed as usize % isas.len()]);
        let (graph, feeds) = generate::graph(seed, &generate::Size::default());
        let expected = unplanned(&device, &graph, &feeds);
        let threads = [1, 2, 5][seed as usize % 3];
        // Every strategy in turn, each with and without results in place.
        let strategy = Strategy::ALL[seed as usize % Strategy::ALL.len()];
        for (strategy, sharing) in [
            (strategy, Sharing::Full),
            (strategy, Sharing::None),
            (Strategy::Best, Sharing::Full),
            (Strategy::Ggml, Sharing::Direct),
        ] {
            let options = planned(threads, strategy, sharing);
            let got = run_planned(&device, &graph, &feeds, &options).unwrap();
            assert!(got == expected, "graph {seed}, {strategy}, {sharing:?}, {threads} threads");
        }
    }
}

#[test]
fn steps_that_change_places_give_the_same_bits() {
    let isas: Vec<_> = isas().collect();
    let mut smaller = 0;
    for seed in 0..240 {
        let device: Arc<dyn Device> = device(isas[seed as usize % isas.len()]);
        let size = generate::Size { moves: 40, ..generate::Size::default() };
        let (graph, feeds) = generate::graph(seed + 20_000, &size);
        let [given, moved] = [StepOrder::Given, StepOrder::Smallest].map(|order| {
            let mut options = planned([1, 2, 5][seed as usize % 3], Strategy::Best, Sharing::Full);
            options.session.order = order;
            let mut session =
                Session::new(Machine::new([Arc::clone(&device)]).unwrap(), options.session.clone()).unwrap();
            let kept = run_in(&mut session, &graph, &feeds, &options).unwrap();
            (session.arena_bytes(DeviceId::default()), kept)
        });
        assert!(moved.1 == given.1, "graph {seed}");
        assert!(moved.0 <= given.0, "graph {seed}: {} bytes instead of {}", moved.0, given.0);
        smaller += usize::from(moved.0 < given.0);
    }
    assert!(smaller >= 24, "only {smaller} of 240 needed less");
}

#[test]
fn a_larger_graph_prepared_first_changes_nothing() {
    let device: Arc<dyn Device> = device(orlop_cpu::Isa::detect());
    for seed in 0..60 {
        let options = planned(2, Strategy::Best, Sharing::Full);
        let mut session =
            Session::new(Machine::new([Arc::clone(&device)]).unwrap(), options.session.clone()).unwrap();
        let large = generate::Size { moves: 48, elements: 2_000 };
        let (larger, larger_feeds) = generate::graph(seed + 10_000, &large);
        run_in(&mut session, &larger, &larger_feeds, &options).unwrap();
        let (graph, feeds) = generate::graph(seed, &generate::Size::default());
        let got = run_in(&mut session, &graph, &feeds, &options).unwrap();
        assert!(got == unplanned(&device, &graph, &feeds), "graph {seed}");
    }
}

#[test]
fn the_guard_finds_nothing_in_random_graphs_and_changes_no_value() {
    for seed in 0..60 {
        let inner: Arc<dyn Device> = device(orlop_cpu::Isa::detect());
        let guarded = Guarded::new(Arc::clone(&inner));
        let (graph, feeds) = generate::graph(seed + 500, &generate::Size::default());
        let options = planned(2, Strategy::Best, Sharing::Full);
        let as_device: Arc<dyn Device> = Arc::clone(&guarded) as _;
        let got = run_planned(&as_device, &graph, &feeds, &options).unwrap();
        assert_eq!(guarded.trespasses(), []);
        assert!(got == unplanned(&inner, &graph, &feeds), "graph {seed}");
    }
}

#[test]
fn transformer_blocks_agree_with_the_reference() {
    use orlop_graph::DType;
    use orlop_testkit::{ReferenceDevice, decode_elements};
    let experts = Some(generate::ExpertShape { count: 4, used: 2 });
    for (weights, cache) in [(DType::F32, DType::F32), (DType::Q4_K, DType::F16), (DType::Q8_0, DType::Q8_0)]
    {
        for experts in [None, experts] {
            let size = generate::BlockSize { weights, cache, experts, ..generate::BlockSize::default() };
            let size = if weights == DType::Q4_K {
                generate::BlockSize { head: 64, heads: 4, kv_heads: 2, hidden: 256, ..size }
            } else {
                size
            };
            let (graph, feeds) = generate::block(&size).unwrap();
            let reference: Arc<dyn Device> = ReferenceDevice::new();
            let cpu: Arc<dyn Device> = device(orlop_cpu::Isa::detect());
            let expected = unplanned(&reference, &graph, &feeds);
            for precision in [Precision::F32, Precision::Int16, Precision::Int8] {
                let mut options = planned(2, Strategy::Best, Sharing::Full);
                options.session.lower.precision = precision;
                let got = run_planned(&cpu, &graph, &feeds, &options).unwrap();
                for ((id, expected), (_, got)) in expected.iter().zip(&got) {
                    let dtype = graph.tensor(*id).desc.dtype;
                    let decode = |bytes: &[u8]| decode_elements(dtype, bytes).unwrap();
                    let (expected, got) = (decode(expected), decode(got));
                    let error: f64 = expected.iter().zip(&got).map(|(a, b)| (a - b) * (a - b)).sum();
                    let norm: f64 = expected.iter().map(|a| a * a).sum();
                    let rounded = precision == Precision::Int8 && weights.is_quantized();
                    let limit = match (rounded, dtype.is_quantized()) {
                        (true, _) => 1e-3,
                        (_, true) => 1e-4,
                        _ => 1e-6,
                    };
                    assert!(error <= limit * norm.max(1e-9), "{}: {error} of {norm}", graph.tensor(*id).name);
                }
            }
        }
    }
}

/// A row that every thread reads must not be overwritten by the one that comes to it first.
#[test]
fn results_do_not_take_the_place_of_what_is_also_read_through_a_view() {
    use orlop_graph::{DType, GraphBuilder};
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[256, 64]);
    let y = b.sqr(x);
    let row = b.view(y, [256, 1, 1, 1], [4, 1024, 1024, 1024], 63 * 1024);
    let sums = b.add(y, row);
    b.output(sums);
    let graph = b.build().unwrap();
    let values: Vec<f32> = (0..256 * 64).map(|i| (i % 251) as f32).collect();
    let feeds = vec![(x, orlop_testkit::f32_bytes(&values))];
    let device: Arc<dyn Device> = device(orlop_cpu::Isa::detect());
    let expected = unplanned(&device, &graph, &feeds);
    for sharing in [Sharing::Full, Sharing::Direct, Sharing::None] {
        for _ in 0..20 {
            let got = run_planned(&device, &graph, &feeds, &planned(5, Strategy::Best, sharing)).unwrap();
            assert!(got == expected, "{sharing:?}");
        }
    }
}
