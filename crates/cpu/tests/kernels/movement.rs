//! Elements on their way on the CPU device, byte for byte as the reference moves them.

use crate::compare::Case;
use crate::exact::Exact;
use orlop_backend::{DeviceError, Reason};
use orlop_graph::{DType, Op, Patch, TensorDesc};

/// Two blocks, or a few elements.
fn row(dtype: DType) -> u64 {
    if dtype.is_quantized() { 2 * dtype.block_elements() } else { 7 }
}

#[test]
fn every_type_moves_as_it_is_stored() {
    for dtype in DType::all() {
        let n = row(dtype);
        let mut case = Exact::new();
        let x = case.bytes(dtype, &[n, 3, 2, 2]);
        let gaps = case.gaps(dtype, [n, 3, 2, 2]);
        let permuted = case.b.permute(gaps, [0, 2, 3, 1]);
        for x in [x, gaps, permuted] {
            case.b.dup(x);
            case.b.cont(x);
            case.b.cast(x, dtype);
            let [a, b, c, d] = case.b.desc(x).extents;
            case.b.repeat(x, [3 * a, b, 2 * c, d]);
            case.b.repeat(x, [a, 2 * b, c, 3 * d]);
            for axis in 0..4 {
                case.b.concat(&[x, x, x], axis);
            }
            let target = case.bytes(dtype, &[n * 12]);
            case.b.copy(x, target);
            let target = case.gaps(dtype, [n, 2, 3, 2]);
            case.b.copy(x, target);
            let base = case.bytes(dtype, &[4 * n, 8, 2]);
            let size = dtype.block_bytes();
            let strides = [case.b.desc(base).strides[1], 5 * size, 70 * size];
            case.b.set(base, x, Patch { strides, offset: 3 * size });
        }
        case.check();
    }
}

#[test]
fn elements_apart() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I8, DType::I64, DType::F64] {
        let mut case = Exact::new();
        let x = case.bytes(dtype, &[5, 4, 3, 2]);
        let transposed = case.b.transpose(x);
        let permuted = case.b.permute(x, [2, 3, 1, 0]);
        let column = case.b.view(x, [1, 4, 3, 1], case.b.desc(x).strides, dtype.block_bytes());
        let broadcast = case.b.view(x, [5, 3, 4, 1], [dtype.block_bytes(), 0, 0, 0], 0);
        for x in [transposed, permuted, column, broadcast] {
            case.b.cont(x);
            let [a, b, c, d] = case.b.desc(x).extents;
            case.b.repeat(x, [2 * a, b, 2 * c, d]);
            case.b.concat(&[x, x], 0);
            case.b.concat(&[x, x], 2);
            case.b.pad(x, [1, 0, 2, 0], [0, 1, 0, 1]);
            case.b.roll(x, [1, -1, 7, -9]);
            let target = case.bytes(dtype, &[a * b * c * d, 2]);
            let apart = case.b.view(
                target,
                [a * b, c * d, 1, 1],
                [2 * dtype.block_bytes(), 2 * dtype.block_bytes() * a * b, 0, 0],
                dtype.block_bytes(),
            );
            case.b.copy(x, apart);
        }
        case.check();
    }
}

#[test]
fn long_rows() {
    for dtype in [DType::F32, DType::I8, DType::Q4_0, DType::Q6_K] {
        let mut case = Exact::new();
        let x = case.bytes(dtype, &[256 * 50]);
        case.b.dup(x);
        case.b.repeat(x, [256 * 100, 1, 1, 1]);
        case.b.concat(&[x, x], 0);
        if !dtype.is_quantized() {
            let one = case.bytes(dtype, &[1]);
            case.b.repeat(one, [9_999, 1, 1, 1]);
            case.b.roll(x, [6_000, 0, 0, 0]);
            case.b.pad(x, [5_000, 1, 0, 0], [4_999, 0, 0, 0]);
            let halves =
                case.b.view(x, [6_400, 2, 1, 1], [2 * dtype.block_bytes(), dtype.block_bytes(), 0, 0], 0);
            case.b.cont(halves);
        }
        case.check();
    }
}

#[test]
fn types_meet_as_f32() {
    let floats = [DType::F32, DType::F16, DType::BF16, DType::F64];
    let blocks = [DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::IQ4_NL, DType::MXFP4];
    for from in floats.into_iter().chain(blocks) {
        for to in floats.into_iter().chain(blocks) {
            let mut case = Exact::new();
            let x = case.numbers(from, &[256, 3, 2]);
            case.b.cast(x, to);
            let gaps = case.b.view(x, [256, 2, 2, 1], case.b.desc(x).strides, 0);
            case.b.cast(gaps, to);
            let flat = case.bytes(to, &[256 * 6]);
            case.b.copy(x, flat);
            let tall = case.gaps(to, [256, 1, 3, 2]);
            let tall = case.b.permute(tall, [0, 2, 1, 3]);
            case.b.copy(x, tall);
            if from.block_elements() == 1 && to.block_elements() <= 32 {
                let short = case.b.reshape(x, &[8, 32, 6]);
                let target = case.bytes(to, &[32, 2, 24]);
                case.b.copy(short, target);
                let apart = case.b.transpose(x);
                let target = case.bytes(to, &[768, 2]);
                case.b.copy(apart, target);
            }
            case.check();
        }
    }
    let mut case = Exact::new();
    let x = case.numbers(DType::F32, &[5_000]);
    let half = case.b.cast(x, DType::F16);
    case.b.cast(half, DType::F32);
    case.check();
}

#[test]
fn integers_drop_the_fraction() {
    let values = [1.9, -1.9, 300.0, -3e5, 3e9, -3e9, 1e30, f64::NAN, f64::NEG_INFINITY, 0.5];
    for from in [DType::F32, DType::F16, DType::BF16] {
        for to in [DType::I8, DType::I16, DType::I32, DType::I64] {
            let mut case = Exact::new();
            let x = case.values(from, &[5, 2], &values);
            let y = case.b.cast(x, to);
            case.b.cast(y, DType::F32);
            case.b.cast(y, DType::F16);
            let transposed = case.b.transpose(x);
            case.b.cast(transposed, to);
            case.check();
        }
    }
    let mut case = Exact::new();
    let wide = case.values(DType::I32, &[3], &[2147483647.0, -16777217.0, 40000.0]);
    for to in [DType::F32, DType::BF16, DType::I16, DType::I8] {
        case.b.cast(wide, to);
    }
    case.check();
}

#[test]
fn conversions_that_would_lose_digits_are_refused() {
    let refused = |operand, dtype| Reason::DType { operand, dtype };
    let table = [
        (DType::I32, DType::I64, refused(0, DType::I32)),
        (DType::I64, DType::I32, refused(0, DType::I64)),
        (DType::F64, DType::I32, refused(0, DType::F64)),
    ];
    for (from, to, expected) in table {
        let mut case = Exact::new();
        let x = case.bytes(from, &[256]);
        case.b.cast(x, to);
        match case.refusal() {
            DeviceError::Unsupported { reason, .. } => assert_eq!(reason, expected),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn copies_between_overlapping_places() {
    for (from, to) in [(0, 3), (3, 0), (0, 0), (1, 2)] {
        let mut case = Exact::new();
        let x = case.bytes(DType::F32, &[6, 20]);
        let part = |case: &mut Exact, row: u64| case.b.view(x, [5, 17, 1, 1], [4, 24, 408, 408], row * 24);
        let (from, to) = (part(&mut case, from), part(&mut case, to));
        case.b.copy(from, to);
        case.check();
    }
    let mut case = Exact::new();
    let x = case.bytes(DType::Q8_0, &[64, 9]);
    let from = case.b.view(x, [64, 8, 1, 1], [34, 68, 544, 544], 0);
    let to = case.b.view(x, [32, 16, 1, 1], [34, 34, 544, 544], 34);
    case.b.copy(from, to);
    case.check();
}

#[test]
fn destinations_that_share_memory_keep_what_comes_last() {
    let mut case = Exact::new();
    let x = case.bytes(DType::F32, &[40, 30]);
    let target = case.bytes(DType::F32, &[70]);
    let rows = case.b.view(target, [40, 30, 1, 1], [4, 4, 0, 0], 0);
    case.b.copy(x, rows);
    let target = case.bytes(DType::F16, &[1]);
    let one = case.b.view(target, [40, 30, 1, 1], [0, 0, 0, 0], 0);
    case.b.copy(x, one);
    let base = case.bytes(DType::F32, &[1_200]);
    case.b.set(base, x, Patch { strides: [80, 0, 0], offset: 2 });
    case.check();
    let mut case = Exact::new();
    let base = case.numbers(DType::F32, &[1_200]);
    let x = case.numbers(DType::F32, &[40, 30]);
    case.b.acc(base, x, Patch { strides: [80, 0, 0], offset: 8 });
    case.check();
}

#[test]
fn sums_at_a_place() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let mut case = Exact::new();
        let base = case.numbers(dtype, &[1_500, 3]);
        let patch = case.numbers(dtype, &[1_100, 2]);
        let size = dtype.block_bytes();
        case.b.acc(base, patch, Patch { strides: [1_500 * size, 0, 0], offset: 31 * size });
        let turned = case.numbers(dtype, &[4, 5]);
        let turned = case.b.transpose(turned);
        case.b.acc(base, turned, Patch { strides: [10 * size, 0, 0], offset: 0 });
        case.b.set(base, turned, Patch { strides: [10 * size, 0, 0], offset: size });
        case.check();
    }
}

#[test]
fn ranges() {
    for (start, stop, step) in [(0.0, 10.0, 1.0), (0.0, 0.3, 0.1), (5.0, -5_000.0, -0.7), (1.0, 1.0, 1.0)] {
        let mut case = Exact::new();
        case.b.arange(start, stop, step);
        case.check();
    }
}

#[test]
fn nothing_and_next_to_nothing() {
    let mut case = Exact::new();
    let none = case.bytes(DType::F32, &[0, 3]);
    let no_rows = case.bytes(DType::F32, &[2, 0]);
    let some = case.bytes(DType::F32, &[2, 3]);
    let one = case.bytes(DType::F32, &[1]);
    for x in [none, no_rows, one] {
        case.b.dup(x);
        case.b.cast(x, DType::F16);
        case.b.roll(x, [3, -1, 0, 0]);
        case.b.pad(x, [1, 0, 1, 0], [1, 1, 0, 0]);
    }
    case.b.concat(&[none, some, none], 0);
    case.b.concat(&[no_rows, some, no_rows], 1);
    case.b.set(some, none, Patch { strides: [0; 3], offset: 4 });
    case.b.acc(some, no_rows, Patch { strides: [0; 3], offset: 4 });
    case.b.repeat(one, [1; 4]);
    case.check();
}

#[test]
fn blocks_with_gaps_between_them() {
    let strides = [40, 40 * 2, 40 * 8, 0];
    let mut case = Exact::new();
    let x = case.strided(TensorDesc::strided(DType::Q8_0, [64, 3, 2, 1], strides).unwrap());
    case.b.cont(x);
    case.check();
    let mut case = Exact::new();
    let values = case.numbers(DType::F32, &[64, 3, 2]);
    let x = case.strided(TensorDesc::strided(DType::Q8_0, [64, 3, 2, 1], strides).unwrap());
    let stored = case.b.copy(values, x);
    case.b.cast(stored, DType::F32);
    case.check();
}

#[test]
fn in_place() {
    for dtype in [DType::F32, DType::BF16] {
        for op in [
            Op::Dup,
            Op::Cont,
            Op::Set(Patch { strides: [24, 0, 0], offset: 8 }),
            Op::Acc(Patch { strides: [24, 0, 0], offset: 8 }),
        ] {
            let mut case = Case::new();
            let x = case.noise(dtype, &[33, 40, 2]);
            let patch = case.noise(dtype, &[3, 7]);
            let operands = if matches!(op, Op::Dup | Op::Cont) { vec![x] } else { vec![x, patch] };
            let y = case.b.node(op, &operands);
            case.check(y, 1e-10);
        }
    }
}
