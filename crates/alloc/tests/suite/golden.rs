//! Sequences whose every address is known.

use orlop_alloc::{
    Assignment, Externals, GraphAllocator, Misfit, PlanOptions, RegionAllocator, SetPlace, SetTensor,
    TensorAllocator, TensorSet, Unread, ValueId, plan_as_ggml, plan_memory,
};
use orlop_graph::{Graph, GraphBuilder, Order, TensorId};

use crate::support::{Foreign, Notes, apart, build, bytes, host, in_place, input, offsets, op};

/// A graph of leaves of some sizes, to be allocated by hand.
fn leaves(sizes: &[u64]) -> (Graph, Vec<TensorId>) {
    let mut b = GraphBuilder::new();
    let ids = sizes.iter().enumerate().map(|(i, size)| input(&mut b, &format!("t{i}"), *size)).collect();
    (build(b), ids)
}

#[test]
fn gt_1_best_fit_with_holes_and_an_empty_request() {
    let (graph, t) = leaves(&[100, 64, 200, 64, 32, 64, 10, 40, 32, 64, 0]);
    let mut allocator = TensorAllocator::measure(32).unwrap();
    let mut alloc = |ids: &[TensorId]| -> Vec<u64> {
        ids.iter().map(|id| allocator.alloc(&graph, *id).unwrap()).collect()
    };
    assert_eq!(alloc(&t[..7]), [0, 128, 192, 416, 480, 512, 576]);
    for freed in [t[1], t[3], t[5]] {
        allocator.free(&graph, freed).unwrap();
    }
    let mut alloc = |id| allocator.alloc(&graph, id).unwrap();
    assert_eq!([alloc(t[7]), alloc(t[8]), alloc(t[9]), alloc(t[10])], [512, 416, 128, 448]);
    allocator.free(&graph, t[2]).unwrap();
    assert_eq!(allocator.max_bytes(), 608);
    // The hole of 224 that is left takes this one; what the empty tensor lies on is still free.
    assert_eq!(allocator.alloc(&graph, t[2]).unwrap(), 192);
    allocator.free(&graph, t[10]).unwrap();
    assert_eq!(allocator.alloc(&graph, t[3]).unwrap(), 608);
}

#[test]
fn gt_2_a_region_of_the_measured_size_repeats_the_measured_run() {
    let (graph, t) = leaves(&[128, 32, 64, 32, 64, 128]);
    let run = |allocator: &mut TensorAllocator| {
        for id in &t[..4] {
            allocator.alloc(&graph, *id).unwrap();
        }
        allocator.free(&graph, t[0]).unwrap();
        allocator.free(&graph, t[2]).unwrap();
        [allocator.alloc(&graph, t[4]), allocator.alloc(&graph, t[5])]
    };
    let mut measure = TensorAllocator::measure(32).unwrap();
    assert_eq!(run(&mut measure), [Ok(160), Ok(0)]);
    assert_eq!(measure.max_bytes(), 256);
    let mut real = TensorAllocator::with_buffer(&host(32, 256), measure.max_bytes()).unwrap();
    assert_eq!(run(&mut real), [Ok(160), Ok(0)]);
    assert_eq!(real.max_bytes(), 256);
}

#[test]
fn gt_3_barriers_say_when_memory_is_given_back() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let n0 = op(&mut b, "n0", &[x], 64);
    let n1 = op(&mut b, "n1", &[x], 64);
    let n2 = op(&mut b, "n2", &[n0], 64);
    let n3 = op(&mut b, "n3", &[n1, n2], 64);
    let graph = build(b);
    let place = |order: &Order| {
        let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
        let max = region.alloc_graph_in(&graph, order).unwrap();
        ([x, n0, n1, n2, n3].map(|id| region.offset(&graph, id).unwrap()), max)
    };
    let sequence = |numbers: &[i64]| place(&Order::new(&graph, numbers).unwrap());
    assert_eq!(place(&graph.order()), ([0, 64, 128, 0, 64], 192));
    assert_eq!(sequence(&[0, 1, -1, 2, -1, 3, -1]), ([0, 64, 128, 0, 64], 192));
    assert_eq!(sequence(&[0, 1, 2, -1, 3, -1]), ([0, 64, 128, 192, 0], 256));
    assert_eq!(sequence(&[0, 1, 2, 3]), ([0, 64, 128, 192, 256], 320));
}

#[test]
fn gt_4_outputs_are_neither_given_back_nor_overwritten() {
    let mut builder = GraphBuilder::new();
    let x = input(&mut builder, "x", 64);
    let a = op(&mut builder, "a", &[x], 64);
    let b = in_place(&mut builder, "b", &[a], 64);
    let c = in_place(&mut builder, "c", &[b, b], 64);
    let d = in_place(&mut builder, "d", &[c], 64);
    let e = in_place(&mut builder, "e", &[d], 64);
    let f = op(&mut builder, "f", &[e], 64);
    builder.output(d);
    builder.output(f);
    let graph = build(builder);
    let mut allocator = GraphAllocator::new([host(32, u64::MAX)]).unwrap().with_options(PlanOptions::GGML);
    let allocation = allocator.alloc(&graph, &Externals::new()).unwrap();
    let offset = |id| allocation.slot(id).unwrap().offset;
    assert_eq!([x, a, b, c, d, e, f].map(offset), [0, 64, 64, 0, 0, 64, 128]);
    assert_eq!(allocator.buffer_bytes(0), Ok(192));
}

#[test]
fn gt_5_a_set_fills_one_buffer_after_the_other_and_views_cost_nothing() {
    let view =
        SetTensor { place: SetPlace::ViewOf { tensor: 0, offset: 16 }, ..SetTensor::new("v", bytes(8)) };
    let new = |name, size| SetTensor::new(name, bytes(size));
    let tensors = [new("p", 128), new("q", 64), view, new("r", 128), new("s", 32)];
    let set = TensorSet::allocate(&host(32, 256), &tensors).unwrap();
    let sizes: Vec<u64> = set.buffers().iter().map(|buffer| buffer.bytes()).collect();
    assert_eq!(sizes, [192, 160]);
    let places: Vec<(usize, u64)> = set
        .tensors()
        .iter()
        .map(|tensor| {
            let here = |b: &std::sync::Arc<dyn orlop_backend::Buffer>| {
                std::sync::Arc::ptr_eq(b.gate(), tensor.slot().buffer.gate())
            };
            (set.buffers().iter().position(here).unwrap(), tensor.slot().offset)
        })
        .collect();
    assert_eq!(places, [(0, 0), (0, 128), (0, 16), (1, 0), (1, 128)]);
}

#[test]
fn gt_8_a_leaf_that_is_a_view_of_a_result_does_not_free_it_early() {
    let mut g = Foreign::new(Unread::LivesOn);
    let x = g.leaf("x", 64);
    let t = g.value("t", 64);
    let leaf = g.view("L", t, 0..64);
    g.0.leaves.push((leaf, orlop_alloc::ArenaId::new(0)));
    let view = g.view("W", t, 0..64);
    let [a, b, b2, d] = ["a", "b", "b2", "d"].map(|name| g.value(name, 64));
    g.step(&[x], &[t]);
    g.step(&[t], &[view]);
    g.step(&[leaf], &[a]);
    g.step(&[a], &[b]);
    g.step(&[a, b], &[b2]);
    g.step(&[view, b2], &[d]);
    let usage = g.done();
    for plan in [
        plan_as_ggml(&usage).unwrap(),
        plan_memory(&usage, &PlanOptions::GGML).unwrap(),
        plan_memory(&usage, &PlanOptions::default()).unwrap(),
    ] {
        plan.check().unwrap();
        for other in [a, b, b2, d] {
            assert!(apart(&plan, view, other), "`d` still reads `W`");
        }
    }
}

#[test]
fn gt_9_other_edges_between_the_same_sizes_are_planned_anew() {
    let graph = |last_reads_a: bool| {
        let mut builder = GraphBuilder::new();
        let x = input(&mut builder, "x", 64);
        let a = op(&mut builder, "a", &[x], 64);
        let b = op(&mut builder, "b", &[a], 64);
        let c = op(&mut builder, "c", &[b], 64);
        let d = op(&mut builder, "d", &[c, if last_reads_a { a } else { b }], 64);
        builder.output(d);
        (build(builder), a, c)
    };
    let notes = Notes::default();
    let mut allocator = GraphAllocator::new([host(32, u64::MAX)])
        .unwrap()
        .with_options(PlanOptions::GGML)
        .with_observer(notes.observer());
    allocator.reserve(&graph(false).0).unwrap();
    assert_eq!(notes.plans(), [None]);
    let (other, a, c) = graph(true);
    let allocation = allocator.alloc(&other, &Externals::new()).unwrap();
    assert_eq!(notes.plans(), [Some(Misfit::Step { step: 3 })]);
    let value = |id: TensorId| ValueId::new(id.index());
    assert!(apart(allocation.plan(), value(a), value(c)));
    allocation.plan().check().unwrap();
    assert_eq!(allocator.reserve_size(&other, &Assignment::default()), Ok(vec![192]));
}

#[test]
fn ggmls_own_numbers_for_a_chain_with_a_marker() {
    let mut g = Foreign::new(Unread::LivesOn);
    let x = g.leaf("x", 64);
    let [a, b, c] = ["a", "b", "c"].map(|name| g.value(name, 64));
    let marker = g.0.push_value(
        "marker",
        orlop_alloc::ValueInfo {
            bytes: 64,
            root: a,
            offset: 0,
            layout: 64,
            flags: orlop_alloc::Flags { marker: true, ..Default::default() },
        },
    );
    g.step(&[x], &[a]);
    g.step(&[a], &[b]);
    g.step(&[a], &[marker]);
    g.step_with(&[b], &[c], &[0]);
    let plan = plan_as_ggml(&g.done()).unwrap();
    plan.check().unwrap();
    // `x` is free when `b` comes; `a` is not before the marker; `c` takes the place of `b`.
    assert_eq!(offsets(&plan, [x, a, b, c]), [0, 64, 0, 0]);
    assert_eq!(plan.total(), 128);
}
