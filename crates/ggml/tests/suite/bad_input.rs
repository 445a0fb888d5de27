//! Failed calls change nothing.

use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use orlop_ggml::{
    ggml_gallocr_alloc_graph, ggml_gallocr_free, ggml_gallocr_get_buffer_size, ggml_gallocr_new,
    ggml_gallocr_new_n, ggml_gallocr_reserve, ggml_gallocr_reserve_n, ggml_gallocr_reserve_n_size,
};

use crate::host::{self, Kind, at};
use crate::rig::{Allocator, Rig};

#[test]
fn null_is_answered_with_null_false_or_nothing() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    let allocator = Allocator::new(&kind);
    let mut size = 7;
    // SAFETY: null is allowed everywhere below.
    assert!(unsafe { ggml_gallocr_new(null_mut()) }.is_null());
    // SAFETY: as above.
    assert!(unsafe { ggml_gallocr_new_n(null_mut(), 2) }.is_null());
    // SAFETY: as above.
    assert!(unsafe { ggml_gallocr_new_n(null_mut(), -1) }.is_null());
    // SAFETY: as above.
    unsafe { ggml_gallocr_free(null_mut()) };
    // SAFETY: as above.
    assert!(!unsafe { ggml_gallocr_reserve(null_mut(), rig.graph) });
    // SAFETY: as above.
    assert!(!unsafe { ggml_gallocr_reserve(allocator.0, null_mut()) });
    // SAFETY: as above.
    assert!(!unsafe { ggml_gallocr_alloc_graph(allocator.0, null_mut()) });
    // SAFETY: as above.
    assert!(!unsafe { ggml_gallocr_alloc_graph(null_mut(), null_mut()) });
    // SAFETY: as above.
    unsafe { ggml_gallocr_reserve_n_size(allocator.0, null_mut(), null_mut(), null_mut(), &raw mut size) };
    assert_eq!(size, 0);
    // SAFETY: as above.
    unsafe { ggml_gallocr_reserve_n_size(allocator.0, rig.graph, null_mut(), null_mut(), null_mut()) };
    // SAFETY: as above.
    assert_eq!(unsafe { ggml_gallocr_get_buffer_size(null_mut(), 0) }, 0);
    assert_eq!([-1, 0, 1, i32::MAX].map(|id| allocator.bytes(id)), [0; 4]);
}

#[test]
fn an_allocator_without_buffers_serves_no_graph() {
    let rig = Rig::new();
    let allocator = Allocator::over(&[]);
    rig.output(rig.op("MUL_MAT", &[rig.input(64)], 64));
    assert!(!allocator.reserve(&rig) && !allocator.allocate(&rig));
    assert_eq!(allocator.bytes(0), 0);
}

#[test]
fn an_empty_graph_is_served() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    let allocator = Allocator::new(&kind);
    assert!(allocator.reserve(&rig) && allocator.allocate(&rig));
    assert_eq!((allocator.bytes(0), kind.total()), (0, 0));
}

#[test]
fn buffer_numbers_out_of_range_are_refused() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    let allocator = Allocator::new(&kind);
    let x = rig.input(64);
    rig.output(rig.op("MUL_MAT", &[x], 64));
    for id in [1, -1, i32::MIN] {
        assert!(!allocator.reserve_n(&rig, &HashMap::from([(x, id)])));
    }
    // SAFETY: lists may be null, which is 0 for all.
    assert!(unsafe { ggml_gallocr_reserve_n(allocator.0, rig.graph, null_mut(), null_mut()) });
}

#[test]
fn memory_that_is_refused_leaves_plan_and_buffers_as_they_were() {
    let kind = Kind::new(640, 32);
    let allocator = Allocator::new(&kind);
    let graph = |bytes: usize| {
        let rig = Rig::new();
        let x = rig.input(bytes);
        let y = rig.op("MUL_MAT", &[x], bytes);
        rig.output(rig.op("MUL_MAT", &[x, y], bytes));
        (rig, x)
    };
    kind.willing.store(0, Ordering::SeqCst);
    let (small, x) = graph(64);
    assert!(!allocator.reserve(&small) && !allocator.allocate(&small));
    assert!(at(x).data.is_null() && kind.total() == 0);
    kind.willing.store(1, Ordering::SeqCst);
    assert!(allocator.allocate(&small));
    small.run();
    // Two chunks are needed, and the host allocates only one.
    kind.willing.store(1, Ordering::SeqCst);
    let (large, y) = graph(320);
    assert!(!allocator.reserve(&large) && !allocator.allocate(&large));
    assert!(at(y).data.is_null());
    assert_eq!(kind.live(), [192]);
    small.run();
    let (again, _) = graph(64);
    assert!(allocator.allocate(&again), "the old plan serves still");
    again.run();
    kind.willing.store(-1, Ordering::SeqCst);
    assert!(allocator.allocate(&large));
    large.run();
}

#[test]
fn a_tensor_that_its_buffer_refuses_leaves_the_graph_without_memory() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    let allocator = Allocator::new(&kind);
    let x = rig.input(64);
    let view = rig.view(x, 32, 0);
    rig.output(rig.op("MUL_MAT", &[view], 64));
    kind.binds.store(2, Ordering::SeqCst);
    assert!(!allocator.allocate(&rig));
    let all: Vec<_> = host::nodes(rig.graph).into_iter().chain([x]).collect();
    assert!(all.iter().all(|tensor| at(*tensor).data.is_null() && at(*tensor).buffer.is_null()));
    kind.binds.store(-1, Ordering::SeqCst);
    assert!(allocator.allocate(&rig));
    rig.run();
}

#[test]
fn absurd_sizes_and_alignments_are_refused() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    let allocator = Allocator::new(&kind);
    let x = rig.input(64);
    at(x).ne = [i64::MAX / 8, 1, 1, 1];
    rig.output(rig.op("MUL_MAT", &[x], 64));
    assert!(!allocator.allocate(&rig));
    let odd = Kind::new(usize::MAX, 24);
    let allocator = Allocator::new(&odd);
    let rig = Rig::new();
    rig.output(rig.op("MUL_MAT", &[rig.input(64)], 64));
    assert!(!allocator.allocate(&rig));
}

#[test]
fn a_circle_of_views_and_a_null_node_are_refused() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    let allocator = Allocator::new(&kind);
    let view = rig.view(rig.input(64), 64, 0);
    at(view).view_src = view;
    rig.output(rig.op("MUL_MAT", &[view], 64));
    assert!(!allocator.reserve(&rig));
    let holey = Rig::new();
    holey.output(holey.op("MUL_MAT", &[holey.input(64)], 64));
    host::push_node(holey.graph, null_mut());
    assert!(!allocator.reserve(&holey) && !allocator.allocate(&holey));
}
