//! The scenarios of ggml's own allocator test, with chunk limits of a few bytes.

use std::collections::HashMap;
use std::ffi::c_int;

use orlop_ggml::RawTensor;

use crate::host::{Kind, nbytes};
use crate::rig::{Allocator, Rig, place};

/// Allocates a graph with one buffer type, and simulates it.
fn allocate(rig: &Rig, out: *mut RawTensor, kind: &Kind) -> Allocator {
    rig.output(out);
    let allocator = Allocator::new(kind);
    assert!(allocator.allocate(rig));
    rig.run();
    assert_eq!(allocator.bytes(0), kind.total());
    allocator
}

#[test]
fn a_second_chunk_is_opened_when_the_first_is_full() {
    let (rig, kind) = (Rig::new(), Kind::new(16, 8));
    let x = [8, 8, 8].map(|bytes| rig.input(bytes));
    let product = rig.map("MUL", &[x[0], x[1]]);
    let sum = rig.map("ADD", &[x[1], x[2]]);
    let second = rig.map("ADD", &[product, x[0]]);
    let _allocator = allocate(&rig, rig.map("ADD", &[sum, second]), &kind);
    assert!(kind.total() <= 32 && kind.live().iter().all(|chunk| *chunk <= 16), "{:?}", kind.live());
}

#[test]
fn a_tensor_larger_than_what_is_left_of_a_chunk_gets_another() {
    let (rig, kind) = (Rig::new(), Kind::new(32, 8));
    let (a, b) = (rig.input(16), rig.input(8));
    let _allocator = allocate(&rig, rig.op("CONCAT", &[a, b], 24), &kind);
    assert!(kind.total() <= 32 + 24 && kind.live().iter().all(|chunk| *chunk <= 32), "{:?}", kind.live());
}

#[test]
fn a_tensor_larger_than_the_largest_chunk_is_asked_for_all_the_same() {
    let (rig, kind) = (Rig::new(), Kind::new(16, 8));
    let x = rig.input(24);
    let _allocator = allocate(&rig, rig.map("SCALE", &[x]), &kind);
    assert_eq!(kind.live(), [24]);
}

#[test]
fn there_may_be_more_than_sixteen_chunks() {
    let (rig, kind) = (Rig::new(), Kind::new(8, 8));
    let inputs = [8; 17].map(|bytes| rig.input(bytes));
    let sum = inputs[1..].iter().fold(inputs[0], |sum, input| rig.map("ADD", &[sum, *input]));
    let _allocator = allocate(&rig, sum, &kind);
    assert_eq!(kind.live(), [8; 17]);
}

#[test]
fn what_is_left_of_an_earlier_chunk_is_filled() {
    let (rig, kind) = (Rig::new(), Kind::new(16, 8));
    let x = rig.input(8);
    let padded = rig.op("PAD", &[x], 16);
    let _allocator = allocate(&rig, rig.op("MEAN", &[padded], 4), &kind);
    assert!(kind.total() <= 12 + 16, "{:?}", kind.live());
}

#[test]
fn views_cost_nothing() {
    let (rig, kind) = (Rig::new(), Kind::new(32, 8));
    let (x, y) = (rig.input(16), rig.input(8));
    let view = rig.view(rig.view(x, 16, 0), 8, 4);
    let _allocator = allocate(&rig, rig.map("ADD", &[y, view]), &kind);
    assert!(kind.total() <= 24, "{:?}", kind.live());
}

#[test]
fn memory_is_reused_and_freed_across_chunks() {
    let (rig, kind) = (Rig::new(), Kind::new(40, 8));
    let (x, a, b) = (rig.input(24), rig.input(8), rig.input(8));
    let sum = rig.map("ADD", &[a, b]);
    let padded = rig.op("PAD", &[x], 32);
    let scaled = rig.map("SCALE", &[padded]);
    let both = rig.map("ADD", &[padded, scaled]);
    let _allocator = allocate(&rig, rig.map("ADD", &[sum, rig.view(both, 8, 8)]), &kind);
    assert!(kind.total() <= 40 + 32 + 32, "{:?}", kind.live());
}

#[test]
fn neighbours_that_were_freed_are_one_again() {
    for most in [32, usize::MAX] {
        let (rig, kind) = (Rig::new(), Kind::new(most, 8));
        let x = [16, 16, 16].map(|bytes| rig.input(bytes));
        let means = [0, 1].map(|index| rig.op("MEAN", &[x[index]], 4));
        let padded = rig.op("PAD", &[x[2]], 24);
        let sum = rig.map("ADD", &means);
        let wide = rig.op("PAD", &[sum], 24);
        let _allocator = allocate(&rig, rig.map("ADD", &[padded, wide]), &kind);
        assert!(kind.total() <= 32 + 32 + 24, "{most}: {:?}", kind.live());
    }
}

#[test]
fn memory_that_was_touched_comes_before_memory_that_was_not() {
    let (rig, kind) = (Rig::new(), Kind::new(32, 4));
    let x = rig.input(24);
    let mean = rig.op("MEAN", &[x], 4);
    let _allocator = allocate(&rig, rig.op("MEAN", &[mean], 4), &kind);
    assert!(kind.total() <= 28, "{:?}", kind.live());
}

#[test]
fn two_kinds_of_memory_and_tensors_from_elsewhere_go_together() {
    let (rig, a, b) = (Rig::new(), Kind::new(32, 8), Kind::new(usize::MAX, 8));
    let elsewhere = Rig::new();
    let (weights, more) = (Kind::new(usize::MAX, 8), Kind::new(usize::MAX, 8));
    let given = [16, 16].map(|bytes| elsewhere.input(bytes));
    let held = crate::contexts::allocate(&elsewhere, &weights);
    let third = Rig::new();
    let others = [24, 4].map(|bytes| third.input(bytes));
    let held_too = crate::contexts::allocate(&third, &more);

    let x0 = rig.input(16);
    let x1 = rig.map("MUL", &[x0, given[0]]);
    let x2 = rig.op("PAD", &[x1], 24);
    let x3 = rig.map("MUL", &[x2, others[0]]);
    let x4 = rig.op("MEAN", &[x3], 4);
    let x5 = rig.map("ADD", &[x4, others[1]]);
    let x6 = rig.op("PAD", &[x5], 16);
    let x7 = rig.map("ADD", &[x6, given[1]]);
    let x8 = rig.map("SCALE", &[x7]);
    rig.output(x8);
    let ids: HashMap<*mut RawTensor, c_int> = [x3, x4, x5, x6, others[0], others[1]].map(|x| (x, 1)).into();
    let allocator = Allocator::over(&[&a, &b]);
    assert!(!allocator.allocate(&rig), "which node lies where is not known yet");
    assert!(allocator.reserve_n(&rig, &ids));
    assert!(allocator.allocate(&rig));
    rig.run();
    assert!(a.total() <= 32 + 32 + 24, "{:?}", a.live());
    assert!(b.total() <= 32 + 24, "{:?}", b.live());
    drop(allocator);
    [held, held_too].into_iter().for_each(crate::host::release);
    assert_eq!([a.total(), b.total(), weights.total(), more.total()], [0; 4]);
}

#[test]
fn an_unused_kind_of_memory_takes_none() {
    let (rig, a, b) = (Rig::new(), Kind::new(usize::MAX, 8), Kind::new(usize::MAX, 8));
    let x = rig.input(16);
    rig.output(rig.map("SCALE", &[x]));
    let allocator = Allocator::over(&[&a, &b]);
    assert!(allocator.reserve_n(&rig, &HashMap::new()) && allocator.allocate(&rig));
    rig.run();
    assert_eq!((a.total(), b.total()), (16, 0));
    assert_eq!((allocator.bytes(0), allocator.bytes(1)), (16, 0));
}

#[test]
fn a_second_graph_of_the_same_total_with_a_larger_chunk_gets_other_buffers() {
    let kind = Kind::new(32, 4);
    let rig = Rig::new();
    let (x, y) = (rig.input(24), rig.input(16));
    let sum = rig.map("ADD", &[rig.view(x, 16, 0), y]);
    let allocator = allocate(&rig, sum, &kind);
    assert_eq!(kind.total(), 40);
    let second = Rig::new();
    let (x, y) = (second.input(20), second.input(20));
    second.output(second.map("ADD", &[x, y]));
    assert!(allocator.allocate(&second));
    second.run();
    assert_eq!(kind.total(), 40);
}

#[test]
fn an_element_wise_result_takes_its_operands_place_unless_that_is_still_needed() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 32));
    let x = rig.input(64);
    let a = rig.op("MUL_MAT", &[x], 64);
    let b = rig.map("SCALE", &[a]);
    let c = rig.map("ADD", &[b, b]);
    let d = rig.map("SQR", &[c]);
    crate::host::at(d).flags |= orlop_ggml::FLAG_OUTPUT;
    let e = rig.map("SQR", &[d]);
    let _allocator = allocate(&rig, rig.op("MUL_MAT", &[e], 64), &kind);
    assert_eq!(place(a), place(b));
    assert_ne!(place(b), place(c), "it is read twice");
    assert_eq!(place(c), place(d));
    assert_ne!(place(d), place(e), "it is an output");
    assert_eq!((kind.total(), nbytes(x)), (192, 64));
}
