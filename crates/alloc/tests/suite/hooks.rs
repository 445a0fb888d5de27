//! When buffers are told of tensors, and what their refusals leave behind.

use std::sync::Arc;

use orlop_alloc::{
    Error, Externals, GraphAllocator, LinearAllocator, RegionAllocator, SetPlace, SetTensor, TensorAllocator,
    TensorSet,
};
use orlop_backend::DeviceError;
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};

use crate::support::{Spy, State, build, bytes, input, op};

/// Five tensors: `x`, a view of it, two results, and a weight that lies elsewhere.
fn graph() -> (Graph, TensorId) {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 16);
    let weight = b.weight("w", DType::I8, &[16]);
    let view = b.view(x, [8, 1, 1, 1], [1, 8, 8, 8], 8);
    let y = op(&mut b, "y", &[view, weight], 16);
    let z = op(&mut b, "z", &[y], 16);
    b.output(z);
    (build(b), weight)
}

fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Device(DeviceError::Lost { .. }))
}

#[test]
fn each_binding_resets_every_buffer_once_and_initialises_every_tensor_anew() {
    let (graph, _) = graph();
    let (spy, state) = Spy::with_state(16, 16);
    // The type given twice is one arena, of chunks that are reset once each.
    let mut allocator = GraphAllocator::new([Arc::clone(&spy), spy]).unwrap();
    allocator.reserve(&graph).unwrap();
    let chunks = State::count(&state.allocations);
    assert_eq!((State::count(&state.resets), State::count(&state.inits)), (0, 0));
    for _ in 0..3 {
        allocator.alloc(&graph, &Externals::new()).unwrap();
        assert_eq!((State::count(&state.resets), State::count(&state.inits)), (chunks, 4));
    }
}

#[test]
fn external_leaves_are_not_bound_again_but_their_views_are() {
    let mut b = GraphBuilder::new();
    let weight = b.weight("w", DType::I8, &[16]);
    let view = b.view(weight, [8, 1, 1, 1], [1, 8, 8, 8], 8);
    let y = op(&mut b, "y", &[view], 16);
    b.output(y);
    let graph = build(b);
    let (spy, state) = Spy::with_state(8, 1024);
    let set = TensorSet::allocate(&spy, &[SetTensor::new("w", bytes(16))]).unwrap();
    assert_eq!(State::count(&state.inits), 1);
    let mut externals = Externals::new();
    externals.insert(weight, set.tensors()[0].clone());
    let mut allocator = GraphAllocator::new([spy]).unwrap();
    allocator.alloc(&graph, &externals).unwrap();
    assert_eq!(State::count(&state.inits), 2, "the view and `y`");
}

#[test]
fn a_graph_can_be_bound_again_after_a_refusal_at_any_tensor() {
    let (graph, _) = graph();
    let (spy, state) = Spy::with_state(16, 1024);
    let mut allocator = GraphAllocator::new([spy]).unwrap();
    for tensor in 0..4 {
        state.fail_init_after(tensor);
        assert!(is_lost(&allocator.alloc(&graph, &Externals::new()).unwrap_err()));
        let allocation = allocator.alloc(&graph, &Externals::new()).unwrap();
        allocation.plan().check().unwrap();
        assert_eq!(State::count(&state.allocations), u64::from(tensor == 0), "nothing is allocated again");
    }
}

#[test]
fn a_tensor_that_is_refused_leaves_its_room_to_the_next() {
    let (graph, _) = graph();
    let (x, z) = (graph.find("x").unwrap(), graph.find("z").unwrap());
    let (spy, state) = Spy::with_state(16, 1024);
    let mut allocator = TensorAllocator::with_buffer(&spy, 32).unwrap();
    state.fail_init_after(0);
    assert!(is_lost(&allocator.alloc(&graph, x).unwrap_err()));
    assert_eq!((allocator.offset(x), allocator.max_bytes()), (None, 0));
    assert_eq!(allocator.alloc(&graph, z), Ok(0));
    assert_eq!(allocator.alloc(&graph, x), Ok(16));
    allocator.free(&graph, z).unwrap();
    assert_eq!((State::count(&state.inits), State::count(&state.frees)), (2, 1));

    let mut linear = LinearAllocator::new(Arc::clone(&spy).allocate(16).unwrap());
    state.fail_init_after(0);
    assert!(is_lost(&linear.alloc("t", bytes(16)).unwrap_err()));
    assert_eq!(linear.alloc("t", bytes(16)).unwrap().slot().offset, 0);
}

#[test]
fn a_region_tells_its_buffer_of_all_that_it_binds() {
    let (graph, _) = graph();
    let x = graph.find("x").unwrap();
    let (spy, state) = Spy::with_state(16, 1024);
    let mut region = RegionAllocator::new(TensorAllocator::with_buffer(&spy, 64).unwrap());
    region.alloc(&graph, x).unwrap();
    assert_eq!(State::count(&state.inits), 1);
    // The view, then `y`: what was bound before the refusal is unbound.
    state.fail_init_after(1);
    assert!(is_lost(&region.alloc_graph(&graph).unwrap_err()));
    assert_eq!((State::count(&state.inits), State::count(&state.frees)), (1, 1));
    assert_eq!((region.max_bytes(), region.offset(&graph, x)), (16, Some(0)));
    assert_eq!(region.alloc_graph(&graph), Ok(32));
    assert_eq!(State::count(&state.inits), 3, "the view, `y` and `z`");

    let mut measure = RegionAllocator::new(TensorAllocator::measure_for(spy).unwrap());
    assert_eq!(measure.alloc_graph(&graph), Ok(32));
    assert_eq!(State::count(&state.inits), 0, "nothing is bound while measuring");
}

#[test]
fn a_set_that_is_refused_at_any_tensor_leaves_nothing() {
    let view =
        SetTensor { place: SetPlace::ViewOf { tensor: 0, offset: 4 }, ..SetTensor::new("v", bytes(4)) };
    let tensors = [SetTensor::new("a", bytes(16)), view, SetTensor::new("b", bytes(16))];
    let (spy, state) = Spy::with_state(8, 16);
    for tensor in 0..3 {
        state.fail_init_after(tensor);
        assert!(is_lost(&TensorSet::allocate(&spy, &tensors).unwrap_err()));
        assert_eq!(Arc::strong_count(&state), 2, "no buffer is left");
    }
    assert_eq!(TensorSet::allocate(&spy, &tensors).unwrap().tensors().len(), 3);
}
