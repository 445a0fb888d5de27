//! Values of the `convolution` ops, computed by hand.

use orlop_graph::{DType, Op, Window};

use crate::support::{Bench, f32, result};

const STEP: Window = Window { stride: [1; 2], padding: [0; 2], dilation: [1; 2] };
const NINE: [f64; 9] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
const FOUR: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

#[test]
fn im2col_lays_patches_out_as_rows() {
    let op = Op::Im2Col { window: STEP, two_d: true, dtype: DType::F32 };
    let y = result(op, &[f32(&[2, 2, 1, 1], &[0.0; 4]), f32(&[3, 3, 1, 1], &NINE)]);
    let rows = [[1.0, 2.0, 4.0, 5.0], [2.0, 3.0, 5.0, 6.0], [4.0, 5.0, 7.0, 8.0], [5.0, 6.0, 8.0, 9.0]];
    assert_eq!(y, rows.concat());
}

#[test]
fn im2col_in_one_dimension_has_channels_outside_and_zeros_in_the_padding() {
    let window = Window { padding: [1, 0], ..STEP };
    let op = Op::Im2Col { window, two_d: false, dtype: DType::F16 };
    // Two elements, two channels, a kernel of two.
    let y = result(op, &[f32(&[2, 2, 1], &[0.0; 4]), f32(&[2, 2], &[1.0, 2.0, 10.0, 20.0])]);
    let rows = [[0.0, 1.0, 0.0, 10.0], [1.0, 2.0, 10.0, 20.0], [2.0, 0.0, 20.0, 0.0]];
    assert_eq!(y, rows.concat());
}

#[test]
fn conv_1d_strides_pads_and_sums_over_channels() {
    let data = f32(&[4], &FOUR);
    let kernel = f32(&[2, 1, 1], &[1.0, 10.0]);
    assert_eq!(result(Op::Conv1d(STEP), &[kernel, data]), [21.0, 32.0, 43.0]);
    let window = Window { stride: [2, 1], padding: [1, 0], dilation: [1; 2] };
    assert_eq!(result(Op::Conv1d(window), &[kernel, data]), [10.0, 32.0, 4.0]);
    let window = Window { dilation: [3, 1], ..STEP };
    assert_eq!(result(Op::Conv1d(window), &[kernel, data]), [41.0]);
    // Two channels in, two out.
    let kernel = f32(&[1, 2, 2], &[1.0, 10.0, 100.0, 1000.0]);
    let data = f32(&[2, 2], &FOUR);
    assert_eq!(result(Op::Conv1d(STEP), &[kernel, data]), [31.0, 42.0, 3100.0, 4200.0]);
}

#[test]
fn conv_2d_does_not_flip_its_kernel() {
    let (kernel, data) = (f32(&[2, 2, 1, 1], &FOUR), f32(&[3, 3, 1, 1], &NINE));
    assert_eq!(result(Op::Conv2d(STEP), &[kernel, data]), [37.0, 47.0, 67.0, 77.0]);
    let window = Window { stride: [2; 2], padding: [1; 2], dilation: [1; 2] };
    assert_eq!(result(Op::Conv2d(window), &[kernel, data]), [4.0, 18.0, 36.0, 77.0]);
    let window = Window { dilation: [2; 2], ..STEP };
    assert_eq!(result(Op::Conv2d(window), &[kernel, data]), [64.0]);
}

#[test]
fn conv_2d_sums_over_channels_and_keeps_pictures_apart() {
    // Kernels of one element: out 0 = 1·c0 + 2·c1, out 1 = 3·c0 + 4·c1. Two pictures of one element.
    let (kernel, data) = (f32(&[1, 1, 2, 2], &FOUR), f32(&[1, 1, 2, 2], &[1.0, 10.0, 2.0, 20.0]));
    assert_eq!(result(Op::Conv2d(STEP), &[kernel, data]), [21.0, 43.0, 42.0, 86.0]);
}

#[test]
fn conv_2d_takes_permuted_data() {
    let mut bench = Bench::new();
    let kernel = bench.f32(&[2, 2, 1, 1], &FOUR);
    let data = bench.f32(&[3, 3], &[1.0, 4.0, 7.0, 2.0, 5.0, 8.0, 3.0, 6.0, 9.0]);
    let data = bench.b.transpose(data);
    let y = bench.b.conv_2d(kernel, data, STEP);
    assert_eq!(bench.read(y), [37.0, 47.0, 67.0, 77.0]);
}

#[test]
fn depthwise_kernels_see_their_own_channel() {
    let kernel = f32(&[2, 1, 1, 2], &[1.0, 2.0, 10.0, 20.0]);
    let data = f32(&[2, 1, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(result(Op::ConvDepthwise2d(STEP), &[kernel, data]), [5.0, 110.0]);
}

#[test]
fn transposed_1d_spreads_each_element() {
    let (kernel, data) = (f32(&[2, 1, 1], &[1.0, 2.0]), f32(&[2], &[1.0, 10.0]));
    assert_eq!(result(Op::ConvTranspose1d { stride: 1 }, &[kernel, data]), [1.0, 12.0, 20.0]);
    assert_eq!(result(Op::ConvTranspose1d { stride: 2 }, &[kernel, data]), [1.0, 2.0, 10.0, 20.0]);
    let kernel = f32(&[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let data = f32(&[1, 2], &[1.0, 10.0]);
    assert_eq!(result(Op::ConvTranspose1d { stride: 1 }, &[kernel, data]), [51.0, 62.0, 73.0, 84.0]);
}

#[test]
fn transposed_2d_spreads_each_element() {
    let (kernel, data) = (f32(&[2, 2, 1, 1], &FOUR), f32(&[2, 1, 1, 1], &[1.0, 10.0]));
    let y = result(Op::ConvTranspose2d { stride: 1 }, &[kernel, data]);
    assert_eq!(y, [1.0, 12.0, 20.0, 3.0, 34.0, 40.0]);
    let y = result(Op::ConvTranspose2d { stride: 2 }, &[kernel, data]);
    assert_eq!(y, [1.0, 2.0, 10.0, 20.0, 3.0, 4.0, 30.0, 40.0]);
    // Two channels out, two in, two pictures.
    let (kernel, data) = (f32(&[1, 1, 2, 2], &FOUR), f32(&[1, 1, 2, 2], &[1.0, 10.0, 2.0, 20.0]));
    let y = result(Op::ConvTranspose2d { stride: 1 }, &[kernel, data]);
    assert_eq!(y, [31.0, 42.0, 62.0, 84.0]);
}
