//! Convolutions against the reference device.

use crate::compare::Case;
use orlop_backend::DeviceError;
use orlop_graph::{DType, Op, Window};

fn window(stride: u32, padding: u32, dilation: u32) -> Window {
    Window { stride: [stride, stride], padding: [padding, padding], dilation: [dilation, dilation] }
}

/// Windows of which none is larger than 5 × 5 elements with a 3 × 2 kernel and padding 0.
const WINDOWS: [(u32, u32, u32); 6] = [(1, 0, 1), (1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 2, 2), (2, 4, 1)];

#[test]
fn two_dimensional() {
    for (stride, padding, dilation) in WINDOWS {
        for [kw, kh, inputs, outputs, w, h, batches] in
            [[3, 2, 5, 7, 9, 6, 2], [1, 1, 3, 2, 5, 5, 1], [3, 2, 1, 33, 40, 5, 1], [2, 3, 17, 40, 6, 7, 3]]
        {
            let window = window(stride, padding, dilation);
            let mut case = Case::new();
            let kernel = case.noise(DType::F32, &[kw, kh, inputs, outputs]);
            let data = case.noise(DType::F32, &[w, h, inputs, batches]);
            let result = case.node(Op::Conv2d(window), &[kernel, data]);
            case.check_named(&format!("{window:?} {kw} {kh} {inputs} {outputs} {w} {h}"), result);
        }
    }
    let mut case = Case::new();
    let kernel = case.noise(DType::F32, &[2, 3, 2, 3]);
    let data = case.noise(DType::F32, &[7, 8, 2, 2]);
    let window = Window { stride: [2, 1], padding: [0, 3], dilation: [3, 2] };
    let result = case.node(Op::Conv2d(window), &[kernel, data]);
    case.check_named("different in each dimension", result);
}

#[test]
fn one_dimensional() {
    for (stride, padding, dilation) in WINDOWS {
        for [k, inputs, outputs, length, batches] in [[3, 4, 5, 20, 3], [3, 80, 70, 50, 1], [1, 1, 1, 1, 1]] {
            let window = Window { padding: [padding, 7], ..window(stride, padding, dilation) };
            let mut case = Case::new();
            let kernel = case.noise(DType::F32, &[k, inputs, outputs]);
            let data = case.noise(DType::F32, &[length, inputs, batches]);
            let result = case.node(Op::Conv1d(window), &[kernel, data]);
            case.check_named(&format!("{window:?} {k} {inputs} {outputs} {length}"), result);
        }
    }
}

#[test]
fn depthwise() {
    for (stride, padding, dilation) in WINDOWS {
        for [kw, kh, channels, w, h, batches] in [[3, 2, 5, 9, 6, 2], [1, 1, 1, 1, 1, 1], [3, 3, 2, 30, 5, 1]]
        {
            let window = window(stride, padding, dilation);
            let mut case = Case::new();
            let kernel = case.noise(DType::F32, &[kw, kh, 1, channels]);
            let data = case.noise(DType::F32, &[w, h, channels, batches]);
            let result = case.node(Op::ConvDepthwise2d(window), &[kernel, data]);
            case.check_named(&format!("{window:?} {kw} {kh} {channels} {w} {h}"), result);
        }
    }
}

#[test]
fn transposed() {
    for stride in [1, 2, 3, 7] {
        for [kw, kh, outputs, inputs, w, h, batches] in
            [[3, 2, 4, 5, 6, 3, 2], [1, 1, 1, 1, 1, 1, 1], [2, 5, 3, 40, 4, 4, 1]]
        {
            let mut case = Case::new();
            let kernel = case.noise(DType::F32, &[kw, kh, outputs, inputs]);
            let data = case.noise(DType::F32, &[w, h, inputs, batches]);
            let result = case.node(Op::ConvTranspose2d { stride }, &[kernel, data]);
            case.check_named(&format!("{stride} {kw} {kh} {outputs} {inputs}"), result);

            let mut case = Case::new();
            let kernel = case.noise(DType::F16, &[kw, outputs, inputs]);
            let data = case.noise(DType::BF16, &[w * h, inputs]);
            let result = case.node(Op::ConvTranspose1d { stride }, &[kernel, data]);
            case.check_named(&format!("{stride} {kw} {outputs} {inputs}"), result);
        }
    }
}

#[test]
fn patches_as_rows() {
    for (stride, padding, dilation) in WINDOWS {
        let window = window(stride, padding, dilation);
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let mut case = Case::new();
            let kernel = case.noise(DType::Q8_0, &[32, 2, 3, 2]);
            let data = case.noise(dtype, &[80, 6, 3, 2]);
            let result = case.node(Op::Im2Col { window, two_d: true, dtype: DType::F16 }, &[kernel, data]);
            case.check_named(&format!("{window:?} {dtype} two"), result);

            let mut case = Case::new();
            let kernel = case.noise(DType::F32, &[3, 5]);
            let data = case.noise(dtype, &[35, 5, 2]);
            let result = case.node(Op::Im2Col { window, two_d: false, dtype: DType::F32 }, &[kernel, data]);
            case.check_named(&format!("{window:?} {dtype} one"), result);
        }
    }
}

fn two_dimensional_ops() -> [(Op, [u64; 4]); 4] {
    let window = window(2, 1, 1);
    [
        (Op::Conv2d(window), [3, 2, 5, 4]),
        (Op::ConvDepthwise2d(window), [3, 2, 1, 5]),
        (Op::ConvTranspose2d { stride: 2 }, [3, 2, 4, 5]),
        (Op::Im2Col { window, two_d: true, dtype: DType::BF16 }, [3, 2, 5, 4]),
    ]
}

#[test]
fn any_strides_and_types() {
    let data = [9, 6, 5, 2];
    for (op, kernel) in two_dimensional_ops() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let mut case = Case::new();
            let operands = [case.gapped(dtype, kernel, 2, 3), case.gapped(dtype, data, 3, 1)];
            let result = case.node(op.clone(), &operands);
            case.check_named(&format!("{op:?} gaps"), result);

            let mut case = Case::new();
            let operands = [case.gapped(dtype, kernel, 1, 3), case.gapped(dtype, data, 1, 1)];
            let result = case.node(op.clone(), &operands);
            case.check_named(&format!("{op:?} padded rows"), result);

            let mut case = Case::new();
            let [a, b, c, d] = kernel;
            let kernel = case.noise(dtype, &[c, a, b, d]);
            let [e, f, g, h] = data;
            let data = case.noise(dtype, &[g, e, f, h]);
            let operands = [kernel, data].map(|operand| case.b.permute(operand, [2, 0, 1, 3]));
            let result = case.node(op.clone(), &operands);
            case.check_named(&format!("{op:?} channels first"), result);

            let mut case = Case::new();
            let kernel = case.noise(DType::F32, &[a, b, c, d]);
            let row = case.noise(dtype, &[e]);
            let size = dtype.block_bytes();
            let data = case.b.view(row, [e, f, g, h], [size, 0, 0, 0], 0);
            let result = case.node(op.clone(), &[kernel, data]);
            case.check_named(&format!("{op:?} one row again and again"), result);
        }
    }
}

#[test]
fn nothing_to_sum_over() {
    let window = window(1, 2, 1);
    for (op, kernel, data) in [
        (Op::Conv2d(window), [3, 2, 0, 4], [5, 5, 0, 2]),
        (Op::Conv2d(window), [3, 2, 3, 4], [0, 5, 3, 2]),
        (Op::Conv2d(window), [3, 2, 3, 4], [5, 0, 3, 2]),
        (Op::Conv2d(window), [3, 2, 3, 0], [5, 5, 3, 2]),
        (Op::Conv2d(window), [3, 2, 3, 4], [5, 5, 3, 0]),
        (Op::Conv1d(window), [3, 0, 4, 1], [5, 0, 2, 1]),
        (Op::Conv1d(window), [3, 2, 4, 1], [0, 2, 2, 1]),
        (Op::ConvDepthwise2d(window), [3, 2, 1, 4], [0, 5, 4, 2]),
        (Op::ConvDepthwise2d(window), [3, 2, 1, 4], [5, 0, 4, 2]),
        (Op::ConvDepthwise2d(window), [3, 2, 1, 0], [5, 5, 0, 2]),
        (Op::ConvTranspose2d { stride: 2 }, [3, 2, 4, 0], [5, 5, 0, 2]),
        (Op::ConvTranspose2d { stride: 2 }, [3, 2, 0, 4], [5, 5, 4, 2]),
        (Op::ConvTranspose1d { stride: 2 }, [3, 4, 0, 1], [5, 0, 1, 1]),
        (Op::Im2Col { window, two_d: true, dtype: DType::F32 }, [3, 2, 3, 4], [0, 5, 3, 2]),
        (Op::Im2Col { window, two_d: true, dtype: DType::F32 }, [3, 2, 0, 4], [5, 5, 0, 2]),
        (Op::Im2Col { window, two_d: false, dtype: DType::F32 }, [3, 2, 3, 4], [0, 2, 3, 1]),
    ] {
        let mut case = Case::new();
        let operands = [case.noise(DType::F32, &kernel), case.noise(DType::F32, &data)];
        let result = case.node(op.clone(), &operands);
        case.check_named(&format!("{op:?} {kernel:?} {data:?}"), result);
    }
}

#[test]
fn infinite_kernels_do_not_meet_the_padding() {
    for (op, _) in two_dimensional_ops() {
        let mut case = Case::new();
        let values = [f64::INFINITY, 1.0, 2.0, 0.5, -1.0, f64::NAN];
        let kernel = case.values(DType::F32, &[3, 2, 1, 1], &values);
        let data = case.noise(DType::F32, &[6, 6, 1, 1]);
        let result = case.node(op.clone(), &[kernel, data]);
        case.check_named(&format!("{op:?}"), result);
    }
}

#[test]
fn large_padding_and_steps_stay_cheap() {
    let mut case = Case::new();
    let kernel = case.noise(DType::F32, &[3, 3, 2, 2]);
    let data = case.noise(DType::F32, &[4, 4, 2, 1]);
    let window = Window { stride: [1 << 28; 2], padding: [u32::MAX; 2], dilation: [1 << 30; 2] };
    let result = case.node(Op::Conv2d(window), &[kernel, data]);
    case.check_named("far apart", result);
}

#[test]
fn other_types_are_refused() {
    let mut case = Case::new();
    let kernel = case.noise(DType::F64, &[3, 3, 2, 2]);
    let data = case.noise(DType::F32, &[4, 4, 2, 1]);
    case.node(Op::Conv2d(Window::default()), &[kernel, data]);
    assert!(matches!(case.refusal(), DeviceError::Unsupported { .. }));
}
