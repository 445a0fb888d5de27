//! Matrix products on the CPU device, against the reference.

use std::sync::Arc;

use crate::compare::Case;
use orlop_backend::{Device, DeviceError, NodeQuery, Operand, Precision, Reason, Support};
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_graph::{DType, Op, TensorDesc};

fn coded() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| !dtype.is_integer() && orlop_quant::supports_encode(*dtype))
}

#[test]
fn shapes_and_batches() {
    for (a, b) in [
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([64, 33, 1, 1], [64, 1, 1, 1]),
        ([65, 3, 1, 1], [65, 40, 1, 1]),
        ([17, 20, 2, 1], [17, 5, 6, 3]),
        ([300, 18, 2, 3], [300, 2, 2, 6]),
        ([1030, 2, 1, 1], [1030, 3, 1, 1]),
    ] {
        for right in [DType::F32, DType::F16, DType::BF16] {
            let mut case = Case::new();
            let (x, y) = (case.noise(DType::F32, &a), case.noise(right, &b));
            let z = case.b.mul_mat(x, y);
            case.check(z, 1e-11);
        }
    }
}

#[test]
fn every_type_on_the_left() {
    for dtype in coded() {
        let mut case = Case::new();
        let (x, y) = (case.noise(dtype, &[512, 19]), case.noise(DType::F32, &[512, 3]));
        let z = case.b.mul_mat(x, y);
        case.check_with(Precision::F32, z, 1e-11);

        let mut case = Case::new();
        let (x, y) = (case.gaps(dtype, [256, 4, 2, 1]), case.gaps(DType::F16, [256, 3, 4, 1]));
        let z = case.b.mul_mat(x, y);
        case.check_with(Precision::F32, z, 1e-11);
    }
}

/// From one row of activations to as many as make repacking the weights worthwhile.
#[test]
fn float_weights_with_few_and_many_rows() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for rows in [1, 2, 5, 6, 7, 13, 95, 96, 97, 200] {
            let mut case = Case::new();
            let (x, y) = (case.noise(dtype, &[147, 37]), case.noise(DType::F32, &[147, rows]));
            let z = case.b.mul_mat(x, y);
            case.check(z, 1e-11);
        }
    }
}

/// Numbers of 16 bits with a scale for each 32 keep what stands beside an outlier; those of 8 bits do not.
#[test]
fn outliers_in_activations_leave_the_others_accurate() {
    const ROWS: u64 = 7;
    for dtype in coded().filter(|dtype| dtype.is_quantized()) {
        // Of every second block of 32, one element is 64 times as large, but meets weights of 0.
        let is_outlier = |place: usize| place % 64 == 13;
        let apart = |values: Vec<f64>, factor: f64| -> Vec<f64> {
            let scaled = values.iter().enumerate();
            scaled.map(|(place, x)| if is_outlier(place % 512) { x * factor } else { *x }).collect()
        };
        for (precision, limit) in [(Precision::Int16, 1e-5), (Precision::Int8, 0.2)] {
            let mut case = Case::new();
            let (weights, x) = (case.numbers(512 * 37), case.numbers(512 * ROWS));
            let weights = case.values(dtype, &[512, 37], &apart(weights, 0.0));
            let x = case.values(DType::F32, &[512, ROWS], &apart(x, 64.0));
            let z = case.b.mul_mat(weights, x);
            case.check_with(precision, z, limit);
        }
    }
}

/// Activations rounded to 8 bits are off by some 1e-5 of their squares, to 16 bits by some 1e-10; so are products.
#[test]
fn quantised_weights_with_rounded_activations() {
    for dtype in coded().filter(|dtype| dtype.is_quantized()) {
        for rows in [1, 2, 4, 5, 6, 7, 13, 100] {
            let mut case = Case::new();
            let (x, y) = (case.noise(dtype, &[512, 37]), case.noise(DType::F32, &[512, rows]));
            let z = case.b.mul_mat(x, y);
            case.check_with(Precision::Int8, z, 1e-4);

            let mut case = Case::new();
            let (x, y) = (case.noise(dtype, &[512, 37]), case.noise(DType::F32, &[512, rows]));
            let z = case.b.mul_mat(x, y);
            case.check(z, 1e-8);
        }
        let mut case = Case::new();
        let (x, y) = (case.gaps(dtype, [256, 20, 2, 1]), case.gaps(DType::F16, [256, 3, 4, 1]));
        let z = case.b.mul_mat(x, y);
        case.check(z, 1e-8);
    }
}

#[test]
fn permuted_operands() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let mut case = Case::new();
        let (x, y) = (case.transposed(dtype, [23, 18, 2, 1]), case.transposed(dtype, [23, 7, 2, 2]));
        let z = case.b.mul_mat(x, y);
        case.check(z, 1e-11);

        let mut case = Case::new();
        let (x, y) = (case.transposed(dtype, [18, 23, 2, 1]), case.transposed(dtype, [7, 23, 2, 2]));
        let z = case.b.out_prod(x, y);
        case.check(z, 1e-11);
    }
}

#[test]
fn experts() {
    for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q6_K] {
        for (each, used, tokens) in [(1, 3, 5), (3, 3, 70), (2, 4, 2), (1, 1, 1)] {
            let mut case = Case::new();
            let a = case.gaps(dtype, [256, 21, 6, 1]);
            let b = case.noise(DType::F32, &[256, each, tokens]);
            let ids: Vec<f64> = (0..used * tokens).map(|i| (i * i % 5) as f64).collect();
            let ids = case.values(DType::I32, &[used, tokens], &ids);
            let y = case.b.mul_mat_id(a, b, ids);
            case.check_with(Precision::F32, y, 1e-11);
        }
    }
}

#[test]
fn experts_with_rounded_activations() {
    for dtype in [DType::Q4_0, DType::Q6_K, DType::Q4_K] {
        for (each, used, tokens) in [(1, 3, 5), (3, 3, 270), (2, 4, 2), (1, 1, 1)] {
            let mut case = Case::new();
            let a = case.gaps(dtype, [256, 37, 6, 1]);
            let b = case.noise(DType::F32, &[256, each, tokens]);
            let ids: Vec<f64> = (0..used * tokens).map(|i| (i * i % 5) as f64).collect();
            let ids = case.values(DType::I32, &[used, tokens], &ids);
            let y = case.b.mul_mat_id(a, b, ids);
            case.check(y, 1e-8);
        }
    }
}

#[test]
fn rows_without_an_expert_are_zero() {
    for (dtype, precision, error) in [
        (DType::F16, Precision::F32, 1e-11),
        (DType::Q6_K, Precision::F32, 1e-11),
        (DType::Q4_K, Precision::Int16, 1e-8),
    ] {
        for (each, used, tokens) in [(1, 3, 5), (3, 3, 70), (2, 4, 2), (1, 1, 1)] {
            let mut case = Case::new();
            let a = case.noise(dtype, &[256, 37, 6]);
            let b = case.noise(DType::F32, &[256, each, tokens]);
            let ids: Vec<f64> = (0..used * tokens).map(|i| (i * i % 5) as f64 - 1.0).collect();
            let ids = case.values(DType::I32, &[used, tokens], &ids);
            let y = case.b.mul_mat_some(a, b, ids);
            case.check_with(precision, y, error);
        }
    }
    for bad in [-2.0, 2.0] {
        let mut case = Case::new();
        let (a, b) = (case.noise(DType::F32, &[4, 3, 2]), case.noise(DType::F32, &[4, 1, 2]));
        let ids = case.values(DType::I32, &[2, 2], &[-1.0, 1.0, bad, 0.0]);
        case.b.mul_mat_some(a, b, ids);
        assert!(matches!(case.error(), DeviceError::BadIndex { rows: 2, .. }));
    }
}

#[test]
fn experts_out_of_range_are_refused() {
    for bad in [-1.0, 2.0] {
        let mut case = Case::new();
        let (a, b) = (case.noise(DType::F32, &[4, 3, 2]), case.noise(DType::F32, &[4, 1, 2]));
        let ids = case.values(DType::I32, &[2, 2], &[0.0, 1.0, bad, 0.0]);
        case.b.mul_mat_id(a, b, ids);
        assert!(matches!(case.error(), DeviceError::BadIndex { rows: 2, .. }));
    }
}

#[test]
fn outer_products() {
    for (a, b) in
        [([1, 1, 1, 1], [1, 1, 1, 1]), ([33, 5, 1, 1], [20, 5, 1, 1]), ([7, 100, 2, 1], [3, 100, 4, 2])]
    {
        for right in [DType::F32, DType::F16, DType::BF16] {
            let mut case = Case::new();
            let (x, y) = (case.noise(DType::F32, &a), case.gaps(right, b));
            let z = case.b.out_prod(x, y);
            case.check(z, 1e-11);
        }
    }
    for dtype in coded() {
        let mut case = Case::new();
        let (x, y) = (case.noise(dtype, &[256, 6]), case.noise(DType::F32, &[18, 6]));
        let z = case.b.out_prod(x, y);
        case.check(z, 1e-11);
    }
}

#[test]
fn empty_operands() {
    for (a, b) in [([0, 20], [0, 3]), ([4, 0], [4, 3]), ([4, 2], [4, 0])] {
        let mut case = Case::new();
        let (x, y) = (case.noise(DType::F32, &a), case.noise(DType::F32, &b));
        let z = case.b.mul_mat(x, y);
        case.check(z, 0.0);
    }
    for (a, b) in [([20, 0], [3, 0]), ([0, 4], [3, 4]), ([2, 4], [0, 4])] {
        let mut case = Case::new();
        let (x, y) = (case.noise(DType::F32, &a), case.noise(DType::F32, &b));
        let z = case.b.out_prod(x, y);
        case.check(z, 0.0);
    }
    // Ids that choose nothing, or whose choice has no rows, are not looked at.
    for (a, b, ids) in
        [([0, 3, 2], [0, 1, 2], [2, 2]), ([4, 0, 0], [4, 1, 2], [2, 2]), ([4, 3, 0], [4, 1, 0], [2, 0])]
    {
        let mut case = Case::new();
        let (x, y) = (case.noise(DType::F32, &a), case.noise(DType::F32, &b));
        let ids = case.values(DType::I32, &ids, &[0.0, 1.0, 1.0, 0.0][..(ids[0] * ids[1]) as usize]);
        let z = case.b.mul_mat_id(x, y, ids);
        case.check(z, 0.0);
    }
}

#[test]
fn gaps_between_blocks_are_refused() {
    let device = CpuDevice::new(ThreadPool::new(1).expect("one thread"));
    let ask = |left: TensorDesc| {
        let right = TensorDesc::contiguous(DType::F32, &[256, 2]).expect("a description");
        let result = TensorDesc::contiguous(DType::F32, &[3, 2]).expect("a description");
        let inputs = [&left, &right].map(|desc| Operand { desc, buffer_type: None });
        let output = Operand { desc: &result, buffer_type: None };
        Arc::clone(&device).supports(&NodeQuery { op: &Op::MulMat, inputs: &inputs, output })
    };
    let coded = |dtype| TensorDesc::contiguous(dtype, &[256, 3]).expect("a description");
    assert!(ask(coded(DType::Q4_K)).is_yes());
    let mut gaps = coded(DType::Q4_0);
    gaps.strides = [20, 200, 600, 600];
    assert_eq!(ask(gaps), Support::No(Reason::Strides { operand: 0 }));
}
