//! Values of the `movement` ops, computed by hand.

use orlop_graph::{DType, Op, Patch};
use orlop_testkit::i64_bytes;

use crate::support::{Bench, f32, i32, result};

#[test]
fn dup_and_cont_make_permuted_operands_contiguous() {
    let mut bench = Bench::new();
    let x = bench.f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let transposed = bench.b.transpose(x);
    let dup = bench.b.dup(transposed);
    let cont = bench.b.cont(transposed);
    let outputs = bench.run().unwrap();
    for id in [dup, cont, transposed] {
        assert_eq!(outputs.f32s(id).unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}

#[test]
fn views_begin_where_their_offset_says() {
    let mut bench = Bench::new();
    let x = bench.f32(&[4, 3], &[0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0, 20.0, 21.0, 22.0, 23.0]);
    let corner = bench.b.view(x, [2, 2, 1, 1], [4, 16, 32, 32], 20);
    let negated = bench.b.scale(corner, -1.0);
    assert_eq!(bench.read(negated), [-11.0, -12.0, -21.0, -22.0]);
}

#[test]
fn permute_sends_each_dimension_to_its_axis() {
    let mut bench = Bench::new();
    let x = bench.f32(&[2, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    // Dimension 2 becomes the innermost.
    let permuted = bench.b.permute(x, [1, 2, 0, 3]);
    let y = bench.b.cont(permuted);
    assert_eq!(bench.read(y), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
}

#[test]
fn cast_converts_and_integers_drop_the_fraction() {
    let x = f32(&[4], &[1.5, -2.75, 65504.0, 0.1]);
    let f16 = result(Op::Cast { dtype: DType::F16 }, &[x]);
    assert_eq!(f16, [1.5, -2.75, 65504.0, 0.0999755859375]);
    assert_eq!(result(Op::Cast { dtype: DType::I32 }, &[x]), [1.0, -2.0, 65504.0, 0.0]);
    let wide = i32(&[2], &[2147483647.0, -2147483648.0]);
    assert_eq!(result(Op::Cast { dtype: DType::F64 }, &[wide]), [2147483647.0, -2147483648.0]);
}

#[test]
fn cast_quantises_and_back() {
    // With 127 as the largest element the scale of a Q8_0 block is 1, so integers survive.
    let row: Vec<f64> = (0..32).map(|i| if i == 31 { 127.0 } else { f64::from(i) - 16.0 }).collect();
    let mut bench = Bench::new();
    let x = bench.f32(&[32], &row);
    let q = bench.b.cast(x, DType::Q8_0);
    let back = bench.b.cast(q, DType::F32);
    let outputs = bench.run().unwrap();
    assert_eq!(outputs.bytes(q).unwrap()[..4], [0x00, 0x3c, 0xf0, 0xf1]);
    assert_eq!(outputs.f64s(back).unwrap(), row);
}

#[test]
fn blocks_and_wide_integers_move_exactly() {
    let mut bench = Bench::new();
    let blocks: Vec<u8> = (0..100).collect();
    let x = bench.raw(DType::IQ1_S, &[256, 2], blocks.clone());
    let twice = bench.b.repeat(x, [256, 2, 2, 1]);
    let wide = bench.raw(DType::I64, &[2], i64_bytes(&[i64::MAX, i64::MIN + 1]));
    let rolled = bench.b.roll(wide, [1, 0, 0, 0]);
    let outputs = bench.run().unwrap();
    assert_eq!(outputs.bytes(twice).unwrap(), [&blocks[..], &blocks[..]].concat());
    assert_eq!(outputs.bytes(rolled).unwrap(), i64_bytes(&[i64::MIN + 1, i64::MAX]));
}

#[test]
fn copy_converts_into_the_destination_and_leaves_gaps_alone() {
    let mut bench = Bench::new();
    let source = bench.f32(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let target = bench.leaf(DType::F16, &[3, 2], &[-1.0; 6]);
    // Two columns of the target, in rows.
    let columns = bench.b.view(target, [2, 2, 1, 1], [2, 6, 12, 12], 2);
    let written = bench.b.copy(source, columns);
    let outputs = bench.run().unwrap();
    assert_eq!(outputs.f32s(target).unwrap(), [-1.0, 1.0, 2.0, -1.0, 3.0, 4.0]);
    assert_eq!(outputs.f32s(written).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn copy_reads_all_of_an_overlapping_source_first() {
    let mut bench = Bench::new();
    let x = bench.f32(&[5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let from = bench.b.view(x, [4, 1, 1, 1], [4, 16, 16, 16], 0);
    let to = bench.b.view(x, [4, 1, 1, 1], [4, 16, 16, 16], 4);
    bench.b.copy(from, to);
    assert_eq!(bench.read(x), [1.0, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn copy_into_a_transposed_destination() {
    let mut bench = Bench::new();
    let source = bench.i32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let target = bench.f32(&[2, 2], &[0.0; 4]);
    let transposed = bench.b.transpose(target);
    bench.b.copy(source, transposed);
    assert_eq!(bench.read(target), [1.0, 3.0, 2.0, 4.0]);
}

#[test]
fn set_lays_the_patch_over_the_base() {
    let base = f32(&[3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let patch = f32(&[2, 2], &[-1.0, -2.0, -3.0, -4.0]);
    let at = Patch { strides: [12, 36, 36], offset: 4 };
    assert_eq!(result(Op::Set(at), &[base, patch]), [1.0, -1.0, -2.0, 4.0, -3.0, -4.0, 7.0, 8.0, 9.0]);
}

#[test]
fn acc_adds_the_patch_to_the_base() {
    let base = f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let patch = f32(&[1, 2], &[10.0, 20.0]);
    let at = Patch { strides: [12, 24, 24], offset: 8 };
    assert_eq!(result(Op::Acc(at), &[base, patch]), [1.0, 2.0, 13.0, 4.0, 5.0, 26.0]);
}

#[test]
fn repeat_tiles() {
    let x = f32(&[2, 1], &[1.0, 2.0]);
    let op = Op::Repeat { extents: [4, 2, 1, 1] };
    assert_eq!(result(op, &[x]), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn concat_joins_along_its_axis() {
    let (a, b) = (f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), f32(&[1, 2], &[8.0, 9.0]));
    assert_eq!(result(Op::Concat { axis: 0 }, &[a, b]), [1.0, 2.0, 8.0, 3.0, 4.0, 9.0]);
    let (c, none) = (f32(&[2, 1], &[8.0, 9.0]), f32(&[2, 0], &[]));
    assert_eq!(result(Op::Concat { axis: 1 }, &[a, none, c]), [1.0, 2.0, 3.0, 4.0, 8.0, 9.0]);
}

#[test]
fn concat_takes_permuted_operands() {
    let mut bench = Bench::new();
    let x = bench.f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let transposed = bench.b.transpose(x);
    let y = bench.b.concat(&[transposed, x], 0);
    assert_eq!(bench.read(y), [1.0, 3.0, 1.0, 2.0, 2.0, 4.0, 3.0, 4.0]);
}

#[test]
fn pad_puts_zeros_around() {
    let x = f32(&[2, 1], &[1.0, 2.0]);
    let op = Op::Pad { before: [1, 0, 0, 0], after: [1, 1, 0, 0] };
    assert_eq!(result(op, &[x]), [0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn roll_moves_forwards_and_comes_round() {
    let x = f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(result(Op::Roll { shifts: [1, 0, 0, 0] }, &[x]), [3.0, 1.0, 2.0, 6.0, 4.0, 5.0]);
    assert_eq!(result(Op::Roll { shifts: [-4, 3, 0, 0] }, &[x]), [5.0, 6.0, 4.0, 2.0, 3.0, 1.0]);
}

#[test]
fn arange_counts_up_to_its_end() {
    assert_eq!(result(Op::Arange { start: 1.0, stop: 4.0, step: 1.5 }, &[]), [1.0, 2.5]);
    assert_eq!(result(Op::Arange { start: 2.0, stop: 0.0, step: -1.0 }, &[]), [2.0, 1.0]);
}

#[test]
fn reshape_keeps_the_order_of_elements() {
    let mut bench = Bench::new();
    let x = bench.f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let reshaped = bench.b.reshape(x, &[2, 3]);
    let y = bench.b.sum_rows(reshaped);
    assert_eq!(bench.read(y), [3.0, 7.0, 11.0]);
}

#[test]
fn empty_tensors_are_no_trouble() {
    let mut bench = Bench::new();
    let x = bench.f32(&[0, 3], &[]);
    let y = bench.b.silu(x);
    let sums = bench.b.sum_rows(x);
    let outputs = bench.run().unwrap();
    assert_eq!(outputs.f32s(y).unwrap(), Vec::<f32>::new());
    assert_eq!(outputs.f32s(sums).unwrap(), [0.0; 3]);
}
