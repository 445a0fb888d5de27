//! Graphs measured and placed in one region.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use orlop_alloc::{Error, Externals, GraphAllocator, RegionAllocator, TensorAllocator};
use orlop_graph::{GraphBuilder, Order};

use crate::support::{Spy, build, host, in_place, input, op};

#[test]
fn an_allocator_says_what_it_is() {
    let buffer = host(32, 1024).allocate(64).unwrap();
    let real = TensorAllocator::in_buffer(Arc::clone(&buffer)).unwrap();
    assert!(!real.is_measuring());
    assert!(real.buffer().is_some_and(|own| Arc::ptr_eq(own.gate(), buffer.gate())));
    let region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
    assert!(region.is_measuring() && region.buffer().is_none());
    drop(real);
    assert_eq!(buffer.bytes(), 64, "a buffer of the caller's is not freed");
}

#[test]
fn a_region_of_the_measured_size_repeats_the_graph() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 100);
    let a = op(&mut b, "a", &[x], 60);
    let view = b.view(a, [30, 1, 1, 1], [1, 30, 30, 30], 30);
    let c = in_place(&mut b, "c", &[view, x], 30);
    let d = op(&mut b, "d", &[c, a], 200);
    let graph = build(b);
    let go = |mut region: RegionAllocator| {
        region.alloc(&graph, x).unwrap();
        let max = region.alloc_graph(&graph).unwrap();
        assert_eq!(region.slot(&graph, d).is_none(), region.is_measuring());
        ([x, a, view, c, d].map(|id| region.offset(&graph, id).unwrap()), max)
    };
    let measured = go(RegionAllocator::new(TensorAllocator::measure(16).unwrap()));
    let exact = TensorAllocator::with_buffer(&host(16, 1024), measured.1).unwrap();
    assert_eq!(go(RegionAllocator::new(exact)), measured);
}

#[test]
fn leaves_are_placed_right_before_their_first_use_unless_by_hand() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let a = op(&mut b, "a", &[x], 64);
    let c = op(&mut b, "c", &[a], 64);
    let late = input(&mut b, "late", 64);
    op(&mut b, "d", &[c, late], 64);
    let graph = build(b);
    let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
    region.alloc_graph(&graph).unwrap();
    assert_eq!(region.offset(&graph, late), region.offset(&graph, a), "`a` is dead by then");
    let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
    region.alloc(&graph, late).unwrap();
    region.alloc_graph(&graph).unwrap();
    for id in [x, a, c] {
        assert_ne!(region.offset(&graph, late), region.offset(&graph, id));
    }
}

#[test]
fn nodes_left_out_of_an_order_are_placed_when_they_are_in_it() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let a = op(&mut b, "a", &[x], 64);
    let c = op(&mut b, "c", &[a], 64);
    let graph = build(b);
    let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
    region.alloc_graph_in(&graph, &Order::new(&graph, &[0]).unwrap()).unwrap();
    assert_eq!([x, a, c].map(|id| region.offset(&graph, id)), [Some(0), Some(64), None]);
    assert_eq!(region.alloc_graph(&graph), Ok(128));
    let [first, second, third] = [x, a, c].map(|id| region.offset(&graph, id).unwrap());
    assert_eq!(second, 64, "it holds its memory since the first call");
    assert!(first != second && third != second);
}

#[test]
fn sizes_are_what_the_buffer_type_says() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let y = op(&mut b, "y", &[x], 64);
    b.output(y);
    let graph = build(b);
    let (spy, state) = Spy::with_state(8, 1024);
    state.padding.store(30, Ordering::Relaxed);
    let mut measure = RegionAllocator::new(TensorAllocator::measure_for(Arc::clone(&spy)).unwrap());
    assert_eq!(measure.alloc_graph(&graph), Ok(2 * 96));
    let mut real = RegionAllocator::new(TensorAllocator::with_buffer(&spy, 192).unwrap());
    assert_eq!(real.alloc_graph(&graph), Ok(192));
    let mut allocator = GraphAllocator::new([spy]).unwrap();
    allocator.alloc(&graph, &Externals::new()).unwrap();
    assert_eq!(allocator.buffer_bytes(0), Ok(192));
}

#[test]
fn a_region_places_leaves_that_are_only_read_through_views() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let view = b.view(x, [32, 1, 1, 1], [1, 32, 32, 32], 32);
    let y = op(&mut b, "y", &[view], 64);
    let graph = build(b);
    let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
    assert_eq!(region.alloc_graph(&graph), Ok(128));
    assert_eq!([x, view, y].map(|id| region.offset(&graph, id)), [Some(0), Some(32), Some(64)]);
}

#[test]
fn a_graph_that_is_allocated_already_is_left_alone() {
    let mut b = GraphBuilder::new();
    let [x, spare] = ["x", "spare"].map(|name| input(&mut b, name, 64));
    let a = op(&mut b, "a", &[x], 64);
    let c = op(&mut b, "c", &[a], 64);
    let d = op(&mut b, "d", &[c], 64);
    let graph = build(b);
    let mut region = RegionAllocator::new(TensorAllocator::with_buffer(&host(32, 1024), 256).unwrap());
    region.alloc(&graph, x).unwrap();
    assert_eq!(region.alloc_graph(&graph), Ok(128));
    let places = |region: &RegionAllocator| [x, a, c, d].map(|id| region.offset(&graph, id));
    let first = places(&region);
    assert_eq!(first, [Some(0), Some(64), Some(0), Some(64)]);
    for _ in 0..3 {
        assert_eq!(region.alloc_graph(&graph), Ok(128));
        assert_eq!(places(&region), first);
    }
    // Only `d` holds memory now: the first free range is where `x` and `c` were.
    assert_eq!(region.alloc(&graph, spare), Ok(0));
    region.reset();
    region.alloc(&graph, spare).unwrap();
    region.alloc(&graph, x).unwrap();
    assert_eq!(region.alloc_graph(&graph), Ok(192));
    assert_eq!(region.offset(&graph, spare), Some(0), "no node reads it, so it stays");
}

#[test]
fn another_graph_is_not_taken_for_the_one_that_is_allocated() {
    let graph = |bytes: u64| {
        let mut b = GraphBuilder::new();
        let x = input(&mut b, "x", bytes);
        let y = op(&mut b, "y", &[x], bytes);
        (build(b), [x, y])
    };
    let ((small, ids), (large, same_ids)) = (graph(64), graph(256));
    assert_eq!(ids, same_ids);
    let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
    assert_eq!(region.alloc_graph(&small), Ok(128));
    let other = Error::OtherGraph { allocated: 1 };
    assert_eq!(region.alloc_graph(&large), Err(other.clone()));
    assert_eq!(region.alloc(&large, ids[0]), Err(other));
    assert_eq!(ids.map(|id| region.offset(&large, id)), [None, None]);
    assert_eq!(ids.map(|id| region.offset(&small, id)), [Some(0), Some(64)], "as it was");
    region.reset();
    assert_eq!(region.alloc_graph(&large), Ok(512));
    assert_eq!(ids.map(|id| region.offset(&large, id)), [Some(0), Some(256)]);
}

#[test]
fn tensors_of_two_graphs_are_not_mixed_up() {
    let graph = || {
        let mut b = GraphBuilder::new();
        let x = input(&mut b, "x", 64);
        let y = op(&mut b, "y", &[x], 64);
        (build(b), [x, y])
    };
    let ((one, [x, y]), (two, _)) = (graph(), graph());
    let mut tensors = TensorAllocator::measure(32).unwrap();
    tensors.alloc(&one, x).unwrap();
    let other = Error::OtherGraph { allocated: 1 };
    assert_eq!(tensors.alloc(&two, y), Err(other.clone()));
    assert_eq!(tensors.free(&two, x), Err(other));
    tensors.free(&one, x).unwrap();
    assert_eq!(tensors.alloc(&two, y), Ok(0), "nothing of the first is left");
}

#[test]
fn what_was_allocated_by_hand_stays_there_and_is_given_back_after_its_last_use() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let a = in_place(&mut b, "a", &[x], 64);
    let c = op(&mut b, "c", &[a], 64);
    let d = op(&mut b, "d", &[c], 64);
    let graph = build(b);
    // A leaf by hand is overwritten in place like any other.
    let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
    region.alloc(&graph, x).unwrap();
    region.alloc_graph(&graph).unwrap();
    assert_eq!([x, a, c, d].map(|id| region.offset(&graph, id).unwrap()), [0, 0, 64, 0]);
    // A result by hand stays where it is, and is given back after its last use.
    let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
    region.alloc(&graph, a).unwrap();
    region.alloc_graph(&graph).unwrap();
    assert_eq!([x, a, c, d].map(|id| region.offset(&graph, id).unwrap()), [64, 0, 64, 0]);
}

#[test]
fn a_region_that_is_too_small_is_as_it_was() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let a = op(&mut b, "a", &[x], 64);
    let large = op(&mut b, "large", &[a], 128);
    op(&mut b, "end", &[a, large], 64);
    let graph = build(b);
    let mut region = RegionAllocator::new(TensorAllocator::with_buffer(&host(32, 1024), 192).unwrap());
    region.alloc(&graph, x).unwrap();
    let full = Error::OutOfSpace { tensor: "large".to_owned(), needed: 128, largest: 64 };
    assert_eq!(region.alloc_graph(&graph), Err(full.clone()));
    assert_eq!((region.max_bytes(), region.offset(&graph, x), region.offset(&graph, a)), (64, Some(0), None));
    assert_eq!(region.alloc_graph(&graph), Err(full));
}

#[test]
fn a_graph_that_is_allocated_already_is_placed_anew_for_another_order() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 64);
    let a = op(&mut b, "a", &[x], 64);
    let c = op(&mut b, "c", &[x], 128);
    let small = op(&mut b, "small", &[c], 32);
    let d = op(&mut b, "d", &[a, small], 64);
    let graph = build(b);
    let ids = [x, a, c, small, d];
    let orders =
        [[0, -1, 1, -1, 2, -1, 3], [1, -1, 2, -1, 0, -1, 3]].map(|order| Order::new(&graph, &order).unwrap());
    let fresh = orders.each_ref().map(|order| {
        let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
        region.alloc(&graph, x).unwrap();
        region.alloc_graph_in(&graph, order).unwrap();
        ids.map(|id| region.offset(&graph, id))
    });
    assert_ne!(fresh[0], fresh[1], "the orders need different places");
    let mut region = RegionAllocator::new(TensorAllocator::with_buffer(&host(32, 1024), 512).unwrap());
    region.alloc(&graph, x).unwrap();
    for round in 0..4 {
        region.alloc_graph_in(&graph, &orders[round % 2]).unwrap();
        assert_eq!(ids.map(|id| region.offset(&graph, id)), fresh[round % 2], "round {round}");
    }
    // What is allocated by hand since stays, so the graph cannot go back to where it began.
    let places = ids.map(|id| region.offset(&graph, id));
    region.alloc(&graph, c).unwrap();
    let refused = Error::AllocatedSince { tensor: "c".to_owned() };
    assert_eq!(region.alloc_graph_in(&graph, &orders[0]), Err(refused));
    assert_eq!(region.offset(&graph, a), places[1]);
    assert!(region.alloc_graph_in(&graph, &orders[1]).is_ok(), "the order that it has");
}

#[test]
fn a_region_that_is_too_small_for_another_order_keeps_the_first() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 32);
    let a = op(&mut b, "a", &[x], 64);
    let c = op(&mut b, "c", &[x], 128);
    let small = op(&mut b, "small", &[c], 32);
    let d = op(&mut b, "d", &[a, small], 32);
    let graph = build(b);
    let ids = [x, a, c, small, d];
    let [late, early] =
        [[0, -1, 1, -1, 2, -1, 3], [1, -1, 2, -1, 0, -1, 3]].map(|order| Order::new(&graph, &order).unwrap());
    let measured = |order: &Order| {
        let mut region = RegionAllocator::new(TensorAllocator::measure(32).unwrap());
        region.alloc_graph_in(&graph, order).unwrap()
    };
    assert_eq!((measured(&early), measured(&late)), (192, 224));
    let exact = TensorAllocator::with_buffer(&host(32, 1024), measured(&early)).unwrap();
    let mut region = RegionAllocator::new(exact);
    region.alloc_graph_in(&graph, &early).unwrap();
    let places = ids.map(|id| region.offset(&graph, id));
    let refused = region.alloc_graph_in(&graph, &late);
    assert!(matches!(refused, Err(Error::OutOfSpace { .. })), "{refused:?}");
    assert_eq!(ids.map(|id| region.offset(&graph, id)), places);
    assert!(region.alloc_graph_in(&graph, &early).is_ok());
}
