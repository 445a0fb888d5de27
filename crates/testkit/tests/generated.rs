//! Generated graphs give the same bytes however their memory is planned.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlop_alloc::{PlanOptions, Sharing};
use orlop_backend::Device;
use orlop_graph::{DType, Graph};
use orlop_plan::{SolveOptions, Strategy};
use orlop_sched::{Machine, Session, SessionOptions};
use orlop_testkit::generate::{self, BlockSize, ExpertShape, Size, block};
use orlop_testkit::{
    Feeds, Interpreter, Observe, PlannedOptions, ReferenceDevice, UnplannedOptions, kept, run_in,
    run_planned, run_unplanned_with,
};

const SHARINGS: [Sharing; 4] = [Sharing::None, Sharing::Direct, Sharing::Tight, Sharing::Full];

fn interpreted(graph: &Graph, feeds: &Feeds) -> Feeds {
    let interpreter = interpreter(graph, feeds);
    let bytes = |id| interpreter.bytes(id).expect("the graph's own");
    kept(graph).into_iter().map(|id| (id, bytes(id))).collect()
}

fn interpreter(graph: &Graph, feeds: &Feeds) -> Interpreter {
    let mut interpreter = Interpreter::new(graph).expect("small graphs");
    for (leaf, bytes) in feeds {
        interpreter.set(*leaf, bytes).expect("feeds are the graph's");
    }
    interpreter.run().expect("generated graphs run");
    interpreter
}

fn options(strategy: Strategy, sharing: Sharing) -> PlannedOptions {
    let plan = PlanOptions { search: SolveOptions::with(strategy), sharing };
    PlannedOptions {
        session: SessionOptions { plan, ..SessionOptions::default() },
        ..PlannedOptions::default()
    }
}

#[test]
fn two_hundred_graphs_give_the_same_bytes_under_every_strategy_and_sharing() {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    for seed in 0..200 {
        let (graph, feeds) = generate::graph(seed, &Size::default());
        let expected = interpreted(&graph, &feeds);
        let observe = UnplannedOptions { observe: Observe::Results, ..UnplannedOptions::default() };
        let unplanned = run_unplanned_with(&device, &graph, &feeds, &observe).unwrap();
        for (id, bytes) in &expected {
            assert_eq!(unplanned.bytes(*id).unwrap(), *bytes, "seed {seed}, {id}, unplanned");
        }
        for strategy in Strategy::ALL {
            for sharing in SHARINGS {
                let planned = run_planned(&device, &graph, &feeds, &options(strategy, sharing)).unwrap();
                assert_eq!(planned, expected, "seed {seed}, {strategy}, {sharing:?}");
            }
        }
    }
}

#[test]
fn graphs_run_in_an_arena_that_a_larger_one_left_behind() {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let mut session =
        Session::new(Machine::new([Arc::clone(&device)]).unwrap(), SessionOptions::default()).unwrap();
    let large = Size { moves: 60, elements: 3000 };
    for (seed, size) in [(900, large), (901, Size::default()), (902, Size::default()), (903, large)] {
        let (graph, feeds) = generate::graph(seed, &size);
        let found = run_in(&mut session, &graph, &feeds, &PlannedOptions::default()).unwrap();
        assert_eq!(found, interpreted(&graph, &feeds), "seed {seed}");
    }
}

#[test]
fn equal_seeds_give_equal_graphs_and_numbers_stay_small() {
    let mut ops = BTreeSet::new();
    let (mut in_place, mut undeclared, mut states) = (0, 0, 0);
    for seed in 0..200 {
        let (graph, feeds) = generate::graph(seed, &Size::default());
        assert_eq!((graph.clone(), feeds.clone()), generate::graph(seed, &Size::default()));
        ops.extend(graph.nodes().iter().map(|node| node.op.name().to_owned()));
        undeclared += usize::from(graph.outputs().is_empty());
        states += graph.leaves().filter(|(_, leaf)| leaf.is_external()).count();
        in_place +=
            graph.nodes().iter().filter(|node| ["copy", "set_rows"].contains(&node.op.name())).count();
        let interpreter = interpreter(&graph, &feeds);
        for id in graph.tensor_ids() {
            let values = interpreter.f64s(id).unwrap();
            let small = values.iter().all(|value| value.abs() <= 1e5);
            assert!(small, "seed {seed}, {id} {}: {values:?}", graph.tensor(id).desc);
        }
    }
    assert!(ops.len() >= 50, "{} ops: {ops:?}", ops.len());
    assert!(in_place > 200 && undeclared > 10 && states > 100, "{in_place} {undeclared} {states}");
}

#[test]
fn blocks_give_the_same_bytes_planned_and_unplanned() {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let dense = BlockSize::default();
    let sizes = [
        dense,
        BlockSize { tokens: 1, cache: DType::Q8_0, ..dense },
        BlockSize { weights: DType::Q4_0, cache: DType::F32, ..dense },
        BlockSize { experts: Some(ExpertShape { count: 4, used: 2 }), ..dense },
        BlockSize { experts: Some(ExpertShape { count: 5, used: 1 }), weights: DType::Q8_0, ..dense },
    ];
    for size in sizes {
        let (graph, feeds) = block(&size).unwrap();
        let expected = interpreted(&graph, &feeds);
        let planned = run_planned(&device, &graph, &feeds, &PlannedOptions::default()).unwrap();
        assert_eq!(planned, expected, "{size:?}");
        let values = orlop_testkit::decode_elements(DType::F32, &expected[0].1).unwrap();
        assert!(values.iter().all(|value| value.is_finite() && value.abs() < 100.0));
    }
    assert!(block(&BlockSize { weights: DType::Q4_0, head: 30, ..dense }).is_err());
}
