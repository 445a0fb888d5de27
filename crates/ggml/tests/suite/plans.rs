//! Graphs beyond the limits of ggml's allocator, and graphs that change.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

use orlop_ggml::{FLAG_OUTPUT, OP_NONE, RawTensor};

use crate::host::{self, Kind, at};
use crate::rig::{Allocator, Rig, place};

#[test]
fn five_hundred_and_twenty_tensors_freed_alternately_leave_as_many_holes() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    let x = rig.input(64);
    let many: Vec<*mut RawTensor> = (0..520).map(|_| rig.op("MUL_MAT", &[x], 64)).collect();
    many.iter().for_each(|tensor| host::build_forward_expand(rig.graph, *tensor));
    let even = many.iter().step_by(2);
    let results: Vec<*mut RawTensor> = even.map(|tensor| rig.op("MUL_MAT", &[*tensor], 4)).collect();
    results.iter().for_each(|tensor| host::build_forward_expand(rig.graph, *tensor));
    let odd = many.iter().skip(1).step_by(2);
    odd.for_each(|tensor| rig.output(rig.op("MUL_MAT", &[*tensor], 4)));
    let allocator = Allocator::new(&kind);
    assert!(allocator.allocate(&rig));
    rig.run();
    // 520 at once, and the first result; then each result's place is less than what was freed for it.
    assert!(kind.total() <= 521 * 64 + 64, "{}", kind.total());
}

#[test]
fn a_graph_of_the_same_shape_takes_the_same_places_without_planning_or_allocating() {
    let kind = Kind::new(usize::MAX, 32);
    let allocator = Allocator::new(&kind);
    let mut first = None;
    for bytes in [256, 256, 128, 64] {
        let rig = Rig::new();
        let x = rig.input(bytes);
        let a = rig.op("MUL_MAT", &[x], bytes);
        let b = rig.map("SCALE", &[a]);
        rig.output(rig.map("ADD", &[b, x]));
        assert!(allocator.allocate(&rig));
        rig.run();
        let places = [x, a, b].map(place);
        assert_eq!(*first.get_or_insert(places), places, "{bytes} bytes");
    }
    assert_eq!(kind.live().len(), 1);
    assert_eq!(kind.resets.load(Ordering::SeqCst), 4);
}

#[test]
fn the_same_graph_may_be_reserved_twice_and_allocated_after() {
    let kind = Kind::new(usize::MAX, 32);
    let (rig, allocator) = (Rig::new(), Allocator::new(&kind));
    let x = rig.input(64);
    rig.output(rig.op("MUL_MAT", &[x], 64));
    assert!(allocator.reserve(&rig) && allocator.reserve(&rig));
    assert!(at(x).data.is_null(), "reserving leaves tensors alone");
    assert!(allocator.allocate(&rig));
    let before = place(x);
    assert!(allocator.allocate(&rig), "a graph that has its memory keeps it");
    assert_eq!((place(x), kind.total()), (before, 128));
    rig.run();
}

#[test]
fn reserving_a_smaller_graph_of_the_same_shape_keeps_the_larger_plan() {
    let (a, b) = (Kind::new(usize::MAX, 32), Kind::new(usize::MAX, 32));
    let allocator = Allocator::over(&[&a, &b]);
    let graph = |bytes: usize| {
        let rig = Rig::new();
        let y = rig.op("MUL_MAT", &[rig.input(bytes)], bytes);
        rig.output(rig.op("MUL_MAT", &[y], bytes));
        (rig, y)
    };
    for (bytes, buffer) in [(640, 0), (64, 0), (640, 0), (64, 1), (64, 0)] {
        let (rig, y) = graph(bytes);
        assert!(allocator.reserve_n(&rig, &HashMap::from([(y, buffer)])) && allocator.allocate(&rig));
        rig.run();
        assert_eq!(place(y).0 == place(crate::host::nodes(rig.graph)[1]).0, buffer == 0);
    }
    assert_eq!((a.total(), b.total()), (1280, 64));
}

/// x, then four products, each of the previous one; the last also reads the product with this number.
fn chain(also: usize) -> (Rig, Vec<*mut RawTensor>) {
    let rig = Rig::new();
    let mut made = vec![rig.input(64)];
    for _ in 0..3 {
        made.push(rig.op("MUL_MAT", &[made[made.len() - 1]], 64));
    }
    made.push(rig.op("MUL_MAT", &[made[3], made[also]], 64));
    rig.output(made[4]);
    (rig, made)
}

#[test]
fn a_graph_whose_edges_changed_is_planned_anew() {
    let kind = Kind::new(usize::MAX, 32);
    let allocator = Allocator::new(&kind);
    for also in [2, 1, 0, 2] {
        let (rig, _) = chain(also);
        assert!(allocator.allocate(&rig));
        rig.run();
    }
    let both = Allocator::over(&[&kind, &kind]);
    assert!(both.reserve_n(&chain(2).0, &HashMap::new()));
    let (changed, _) = chain(1);
    assert!(!both.allocate(&changed), "with several buffers the caller has to reserve");
    assert!(both.reserve_n(&changed, &HashMap::new()) && both.allocate(&changed));
    changed.run();
}

#[test]
fn a_graph_whose_flags_or_ops_changed_is_planned_anew() {
    let kind = Kind::new(usize::MAX, 32);
    let allocator = Allocator::new(&kind);
    let changes: [fn(&[*mut RawTensor]); 4] =
        [|_| {}, |made| at(made[1]).flags |= FLAG_OUTPUT, |made| at(made[2]).op = host::op("SCALE"), |_| {}];
    for change in changes {
        let (rig, made) = chain(3);
        change(&made);
        assert!(allocator.allocate(&rig));
        rig.run();
    }
    // The in-place operation is no longer allowed.
    for op in ["SQR", "MUL_MAT"] {
        let rig = Rig::new();
        let x = rig.input(64);
        let a = rig.op("MUL_MAT", &[x], 64);
        let b = rig.op(op, &[a], 64);
        rig.output(rig.op("MUL_MAT", &[b], 64));
        assert!(allocator.allocate(&rig));
        assert_eq!(place(a) == place(b), op == "SQR");
    }
}

#[test]
fn a_tensor_that_lost_its_memory_is_planned_anew_and_one_that_has_some_is_left_alone() {
    let (kind, weights) = (Kind::new(usize::MAX, 32), Kind::new(usize::MAX, 32));
    let allocator = Allocator::new(&kind);
    for held in [true, false, true] {
        let (rig, elsewhere) = (Rig::new(), Rig::new());
        let w = if held { elsewhere.leaf(96) } else { rig.leaf(96) };
        let buffer = crate::contexts::allocate(&elsewhere, &weights);
        let before = held.then(|| place(w));
        let x = rig.input(64);
        rig.output(rig.op("MUL_MAT", &[w, x], 64));
        assert!(allocator.allocate(&rig));
        rig.run();
        assert!(before.is_none_or(|before| before == place(w)));
        host::release(buffer);
    }
    assert_eq!(kind.total(), 96 + 64 + 64);
}

#[test]
fn scratch_of_an_op_is_part_of_its_result_and_what_is_handed_on_gives_it_back() {
    let mut kind = Kind::new(usize::MAX, 32);
    kind.scratch = (host::op("FLASH_ATTN_EXT"), 1000);
    let (rig, allocator) = (Rig::new(), Allocator::new(&kind));
    let x = rig.input(64);
    let attention = rig.op("FLASH_ATTN_EXT", &[x], 64);
    let scaled = rig.map("SCALE", &[attention]);
    let next = rig.op("MUL_MAT", &[scaled], 960);
    rig.output(rig.op("MUL_MAT", &[next, scaled], 64));
    assert!(allocator.allocate(&rig));
    rig.run();
    assert_eq!(place(attention), place(scaled));
    // x, and 1064 bytes in steps of 32; behind the scaled result there is room for the next but not for the last.
    assert_eq!(kind.total(), 64 + 1088);
}

#[test]
fn a_result_does_not_take_a_place_that_is_too_small_for_its_scratch() {
    let mut kind = Kind::new(usize::MAX, 32);
    kind.scratch = (host::op("SOFT_MAX"), 100);
    let (rig, allocator) = (Rig::new(), Allocator::new(&kind));
    let x = rig.input(64);
    let a = rig.op("MUL_MAT", &[x], 64);
    let soft = rig.map("SOFT_MAX", &[a]);
    rig.output(rig.op("MUL_MAT", &[soft], 64));
    assert!(allocator.allocate(&rig));
    rig.run();
    assert_ne!(place(a), place(soft));
}

#[test]
fn a_marker_keeps_its_source_alive_and_a_copy_follows_it() {
    let (a, b) = (Kind::new(usize::MAX, 32), Kind::new(usize::MAX, 32));
    let (rig, allocator) = (Rig::new(), Allocator::over(&[&a, &b]));
    let x = rig.input(64);
    let first = rig.op("MUL_MAT", &[x], 64);
    let second = rig.op("MUL_MAT", &[first], 64);
    host::build_forward_expand(rig.graph, second);
    let marker = rig.view(first, 64, 0);
    at(marker).op = OP_NONE;
    let copy = rig.leaf(64);
    let third = rig.op("MUL_MAT", &[copy], 64);
    [marker, copy, third].into_iter().for_each(|node| host::push_node(rig.graph, node));
    let ids: HashMap<*mut RawTensor, c_int> = [(copy, 1), (third, 1)].into();
    assert!(allocator.reserve_n(&rig, &ids) && allocator.allocate(&rig));
    assert_ne!(place(first), place(second));
    assert_eq!(place(copy).0, place(third).0);
    assert_ne!(place(copy), place(third));
    assert_eq!((a.total(), b.total()), (2 * 64, 2 * 64));
}

#[test]
fn measuring_says_what_reserving_takes_and_changes_nothing() {
    let (a, b) = (Kind::new(usize::MAX, 32), Kind::new(usize::MAX, 32));
    // The first and the last are the same kind, and share their memory.
    let allocator = Allocator::over(&[&a, &b, &a]);
    let graph = |bytes: usize| {
        let rig = Rig::new();
        let x = rig.input(bytes);
        let y = rig.op("MUL_MAT", &[x], bytes);
        let z = rig.op("MUL_MAT", &[y], bytes / 2);
        rig.output(z);
        (rig, HashMap::from([(y, 1), (z, 2)]))
    };
    let (small, small_ids) = graph(64);
    assert!(allocator.reserve_n(&small, &small_ids) && allocator.allocate(&small));
    let before = (a.live(), b.live());
    let (large, ids) = graph(640);
    let sizes = allocator.measure(&large, &ids, 3);
    assert_eq!(sizes, [640, 640, 0]);
    assert_eq!((a.live(), b.live()), before, "live buffers stay");
    small.run();
    assert!(allocator.reserve_n(&large, &ids));
    assert_eq!([0, 1, 2].map(|id| allocator.bytes(id)), [640, 640, 0]);
    assert!(allocator.allocate(&large));
    large.run();
}

#[test]
fn tensors_without_bytes_lie_somewhere() {
    let kind = Kind::new(usize::MAX, 32);
    let (rig, allocator) = (Rig::new(), Allocator::new(&kind));
    let x = rig.input(0);
    rig.output(rig.op("MUL_MAT", &[x], 0));
    assert!(allocator.allocate(&rig));
    assert!(!at(x).buffer.is_null());
    assert_eq!(kind.total(), 0);
}

#[test]
fn allocators_on_several_threads_do_not_meet() {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let kind = Kind::new(if thread % 2 == 0 { usize::MAX } else { 4096 }, 32);
                let allocator = Allocator::new(&kind);
                for round in 0..20 {
                    let rig = Rig::new();
                    let x = rig.input(256);
                    let mut layers = x;
                    for layer in 0..(4 + (thread + round) % 5) {
                        let wide = rig.op("MUL_MAT", &[layers], 1024 + 64 * layer);
                        layers = rig.map("ADD", &[rig.op("MUL_MAT", &[wide], 256), layers]);
                    }
                    rig.output(layers);
                    assert!(allocator.allocate(&rig));
                    rig.run();
                }
            });
        }
    });
}
