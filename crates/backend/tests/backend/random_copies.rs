use std::sync::Arc;

use orlop_backend::{Buffer, copy};
use orlop_graph::{DType, TensorDesc};
use proptest::prelude::*;

use crate::fixtures::{contents, fill_with, host, pattern, remote, stored, strided};

const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::I8, DType::Q8_0];

/// Strides for the blocks of these extents, dimension by dimension in a random order, with random gaps: no
/// two elements overlap.
fn layouts(dtype: DType, blocks: [u64; 4]) -> impl Strategy<Value = TensorDesc> {
    let order = Just([0_usize, 1, 2, 3]).prop_shuffle();
    let order = prop_oneof![Just([0, 1, 2, 3]), order];
    let gaps = prop_oneof![Just([0; 4]), prop::array::uniform4(prop_oneof![2 => Just(0), 1 => 0..9_u64])];
    (order, gaps).prop_map(move |(order, gaps)| {
        let mut strides = [0; 4];
        let mut next = dtype.block_bytes();
        for dim in order {
            strides[dim] = next + gaps[dim];
            next = strides[dim] * blocks[dim].max(1);
        }
        let [a, b, c, d] = blocks;
        strided(dtype, [a * dtype.block_elements(), b, c, d], strides)
    })
}

fn pairs() -> impl Strategy<Value = [TensorDesc; 2]> {
    let extents = prop::array::uniform4(prop_oneof![1 => Just(0_u64), 40 => 1..5_u64]);
    (prop::sample::select(&DTYPES[..]), extents)
        .prop_flat_map(|(dtype, blocks)| [layouts(dtype, blocks), layouts(dtype, blocks)])
}

/// Where each block of a tensor begins, in element order.
fn places(desc: &TensorDesc) -> Vec<usize> {
    let [a, b, c, d] = desc.extents;
    let mut places = Vec::new();
    for (l, k, j) in (0..d).flat_map(|l| (0..c).flat_map(move |k| (0..b).map(move |j| (l, k, j)))) {
        for i in 0..a / desc.dtype.block_elements() {
            let [s0, s1, s2, s3] = desc.strides;
            places.push((i * s0 + j * s1 + k * s2 + l * s3) as usize);
        }
    }
    places
}

fn check(descs: [TensorDesc; 2], buffers: [&Arc<dyn Buffer>; 2], offsets: [u64; 2]) {
    let (source, mut expected) = (contents(buffers[0]), contents(buffers[1]));
    let block = descs[0].dtype.block_bytes() as usize;
    for (from, to) in places(&descs[0]).into_iter().zip(places(&descs[1])) {
        let element = &source[offsets[0] as usize + from..][..block];
        expected[offsets[1] as usize + to..][..block].copy_from_slice(element);
    }
    let [from, to] = [0, 1].map(|side| stored(descs[side], buffers[side], offsets[side]));
    copy(&from, &to).expect("equal extents, no other claim");
    assert!(contents(buffers[1]) == expected, "{:?} {offsets:?}", descs);
}

fn filled(make: fn(u64) -> Arc<dyn Buffer>, bytes: u64, seed: u64) -> Arc<dyn Buffer> {
    let buffer = make(bytes);
    fill_with(&buffer, &pattern(bytes, seed));
    buffer
}

const KINDS: [fn(u64) -> Arc<dyn Buffer>; 2] = [host, remote];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_element_arrives_and_gaps_stay(descs in pairs(), kinds in [0..2_usize, 0..2], offsets in [0..9_u64, 0..9]) {
        let [from, to] = [0, 1].map(|side| {
            filled(KINDS[kinds[side]], offsets[side] + descs[side].bytes() + 5, side as u64)
        });
        check(descs, [&from, &to], offsets);
    }

    #[test]
    fn places_of_one_buffer_may_overlap_in_any_way(descs in pairs(), kind in 0..2_usize, offsets in [0..99_u64, 0..99]) {
        let bytes = descs[0].bytes().max(descs[1].bytes()) + 99;
        let buffer = filled(KINDS[kind], bytes, 1);
        check(descs, [&buffer, &buffer], offsets);
    }
}
