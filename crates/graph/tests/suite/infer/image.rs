//! Convolution, pooling and upscaling.

use orlop_graph::{DType, Interpolation, Op, Pool, PoolKind, Window};

use super::{accepts, f16, f32, i32, refuses_operand, refuses_parameter};

const WINDOW: Window = Window { stride: [2, 1], padding: [1, 0], dilation: [1, 2] };

fn im2col(window: Window, two_d: bool, dtype: DType) -> Op {
    Op::Im2Col { window, two_d, dtype }
}

#[test]
fn patches_become_rows_of_one_kernel_each() {
    // (10 + 2 - 3) / 2 + 1 = 5 across, (9 - (2 * 2 + 1)) / 1 + 1 = 5 down
    let (kernel, data) = (f16(&[3, 3, 4, 7]), f32(&[10, 9, 4, 2]));
    accepts(im2col(WINDOW, true, DType::F16), &[kernel, data], f16(&[36, 5, 5, 2]));
    refuses_operand(im2col(WINDOW, true, DType::F16), &[kernel, f32(&[10, 9, 3, 2])], 1);
    accepts(im2col(WINDOW, false, DType::F32), &[f16(&[3, 4, 7]), f32(&[10, 4, 2])], f32(&[12, 5, 2]));
    refuses_operand(im2col(WINDOW, false, DType::F32), &[f16(&[3, 4, 7]), f32(&[10, 4, 2, 2])], 1);
    refuses_parameter(im2col(WINDOW, true, DType::Q4_0), &[kernel, data], "dtype");
}

#[test]
fn kernels_fit_the_padded_data() {
    let (kernel, data) = (f16(&[3, 3, 4, 7]), f32(&[10, 9, 4, 2]));
    accepts(Op::Conv2d(WINDOW), &[kernel, data], f32(&[5, 5, 7, 2]));
    accepts(Op::Conv2d(Window::default()), &[kernel, f32(&[3, 3, 4])], f32(&[1, 1, 7]));
    refuses_parameter(Op::Conv2d(Window::default()), &[kernel, f32(&[2, 3, 4])], "window");
    for wrong in
        [Window { stride: [0, 1], ..Window::default() }, Window { dilation: [1, 0], ..Window::default() }]
    {
        refuses_parameter(Op::Conv2d(wrong), &[kernel, data], "window");
    }
    let far = Window { dilation: [u32::MAX; 2], padding: [u32::MAX; 2], ..Window::default() };
    // 10 + 2 * (2^32 - 1) - 2 * (2^32 - 1) - 1 + 1 = 10
    accepts(Op::Conv2d(far), &[kernel, data], f32(&[10, 9, 7, 2]));
    refuses_operand(Op::Conv2d(WINDOW), &[kernel, f32(&[10, 9, 3, 2])], 1);
    refuses_operand(Op::Conv2d(WINDOW), &[i32(&[3, 3, 4, 7]), data], 0);
}

#[test]
fn convolutions_along_a_line() {
    accepts(Op::Conv1d(WINDOW), &[f16(&[3, 4, 7]), f32(&[10, 4, 2])], f32(&[5, 7, 2]));
    refuses_operand(Op::Conv1d(WINDOW), &[f16(&[3, 4, 7]), f32(&[10, 5, 2])], 1);
    refuses_operand(Op::Conv1d(WINDOW), &[f16(&[3, 4, 7]), i32(&[10, 4, 2])], 1);
}

#[test]
fn depthwise_kernels_are_one_a_channel() {
    accepts(Op::ConvDepthwise2d(WINDOW), &[f16(&[3, 3, 1, 4]), f32(&[10, 9, 4, 2])], f32(&[5, 5, 4, 2]));
    refuses_operand(Op::ConvDepthwise2d(WINDOW), &[f16(&[3, 3, 2, 4]), f32(&[10, 9, 4, 2])], 1);
    refuses_operand(Op::ConvDepthwise2d(WINDOW), &[f16(&[3, 3, 1, 4]), f32(&[10, 9, 3, 2])], 1);
}

#[test]
fn transposed_convolutions_spread_their_data() {
    let line = |stride| Op::ConvTranspose1d { stride };
    // (10 - 1) * 2 + 3 = 21
    accepts(line(2), &[f16(&[3, 7, 4]), f32(&[10, 4])], f32(&[21, 7]));
    refuses_operand(line(2), &[f16(&[3, 7, 4]), f32(&[10, 5])], 1);
    refuses_operand(line(2), &[f16(&[3, 7, 4]), f32(&[10, 4, 2])], 1);
    refuses_parameter(line(0), &[f16(&[3, 7, 4]), f32(&[10, 4])], "stride");
    let plane = |stride| Op::ConvTranspose2d { stride };
    accepts(plane(3), &[f16(&[3, 2, 7, 4]), f32(&[10, 9, 4, 2])], f32(&[30, 26, 7, 2]));
    refuses_operand(plane(3), &[f16(&[3, 2, 4, 7]), f32(&[10, 9, 4, 2])], 1);
    refuses_parameter(plane(3), &[f16(&[3, 2, 7, 4]), f32(&[0, 9, 4, 2])], "stride");
}

#[test]
fn pools_count_whole_windows() {
    let pool = Pool { kind: PoolKind::Max, kernel: [3, 2], stride: [2, 2], padding: [1, 0] };
    // (10 + 2 - 3) / 2 + 1 = 5 across, (9 - 2) / 2 + 1 = 4 down
    accepts(Op::Pool1d(pool), &[f32(&[10, 9, 4, 2])], f32(&[5, 9, 4, 2]));
    accepts(Op::Pool2d(pool), &[f16(&[10, 9, 4, 2])], f32(&[5, 4, 4, 2]));
    for op in [Op::Pool1d, Op::Pool2d] {
        refuses_parameter(op(Pool { kernel: [13, 2], ..pool }), &[f32(&[10, 9])], "window");
        refuses_parameter(op(Pool { kernel: [0, 2], ..pool }), &[f32(&[10, 9])], "window");
        refuses_parameter(op(Pool { stride: [0, 2], ..pool }), &[f32(&[10, 9])], "window");
        refuses_operand(op(pool), &[i32(&[10, 9])], 0);
    }
}

#[test]
fn scaling_needs_something_to_scale() {
    let op = |extents| Op::Upscale { extents, mode: Interpolation::Bilinear };
    accepts(op([20, 9, 4, 2]), &[f32(&[10, 3, 4, 2])], f32(&[20, 9, 4, 2]));
    accepts(op([0, 9, 4, 2]), &[f32(&[10, 3, 4, 0])], f32(&[0, 9, 4, 2]));
    refuses_operand(op([20, 9, 4, 2]), &[f32(&[10, 3, 0])], 0);
}

#[test]
fn embeddings_may_have_odd_length() {
    let op = |dim, max_period| Op::TimestepEmbedding { dim, max_period };
    accepts(op(7, 10_000), &[f32(&[3])], f32(&[7, 3]));
    refuses_parameter(op(0, 10_000), &[f32(&[3])], "dim");
    refuses_parameter(op(7, 0), &[f32(&[3])], "max_period");
    refuses_operand(op(7, 10_000), &[f32(&[3, 2])], 0);
}
