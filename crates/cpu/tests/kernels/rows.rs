//! Rows named by indices on the CPU device, byte for byte as on the reference.

use crate::exact::Exact;
use orlop_backend::DeviceError;
use orlop_graph::DType;

#[test]
fn rows_of_every_table() {
    let coded = DType::all().filter(|dtype| orlop_quant::supports_decode(*dtype));
    for dtype in coded {
        let n = if dtype.is_quantized() { dtype.block_elements() * 5 } else { 1_500 };
        let mut case = Exact::new();
        let values: Vec<f64> = (0..n * 9).map(|at| (at * 37 % 101) as f64 - 50.0).collect();
        let table = case.values(dtype, &[n, 9], &values);
        let indices = case.values(DType::I32, &[5], &[8.0, 0.0, 3.0, 3.0, 1.0]);
        case.b.get_rows(table, indices);
        case.check();
    }
}

#[test]
fn tables_with_strides() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32] {
        let mut case = Exact::new();
        let values: Vec<f64> = (0..6 * 5 * 3 * 2).map(f64::from).collect();
        let table = case.values(dtype, &[6, 5, 3, 2], &values);
        let turned = case.b.permute(table, [1, 0, 2, 3]);
        let outer = case.b.permute(table, [0, 1, 3, 2]);
        let indices: Vec<f64> = (0..24).map(|at| f64::from(at % 5)).collect();
        let indices = case.values(DType::I32, &[4, 3, 2], &indices);
        let swapped = case.b.permute(indices, [0, 2, 1, 3]);
        case.b.get_rows(table, indices);
        case.b.get_rows(turned, indices);
        case.b.get_rows(outer, swapped);
        case.check();
    }
}

#[test]
fn rows_into_every_type() {
    let coded = DType::all().filter(|dtype| orlop_quant::supports_encode(*dtype) || dtype.is_integer());
    for dtype in coded {
        for from in [DType::F32, DType::F16, DType::BF16] {
            let n = if dtype.is_quantized() { dtype.block_elements() * 5 } else { 1_300 };
            let mut case = Exact::new();
            let x = case.numbers(from, &[n, 4]);
            let strides = [1, 2 * n, 0, 0].map(|elements| elements * from.block_bytes());
            let gaps = case.b.view(x, [n, 2, 1, 1], strides, 0);
            let target = case.bytes(dtype, &[n, 7]);
            let four = case.values(DType::I64, &[4], &[6.0, -1.0, 2.0, 0.0]);
            let two = case.values(DType::I32, &[2], &[5.0, 2.0]);
            case.b.set_rows(target, x, four);
            case.b.set_rows(target, gaps, two);
            case.check();
        }
    }
}

#[test]
fn outer_dimensions_share_indices() {
    let mut case = Exact::new();
    let x = case.numbers(DType::F32, &[5, 3, 4, 2]);
    for outer in [[4, 2], [2, 1], [1, 2], [1, 1]] {
        let [a, b] = outer;
        let indices: Vec<f64> = (0..3 * a * b).map(|at| (at * 5 % 9) as f64 - 1.0).collect();
        let indices = case.values(DType::I32, &[3, a, b], &indices);
        let target = case.gaps(DType::F16, [5, 8, 4, 2]);
        case.b.set_rows(target, x, indices);
        let target = case.bytes(DType::F32, &[5, 4, 8, 2]);
        let permuted = case.b.permute(target, [0, 2, 1, 3]);
        case.b.set_rows(permuted, x, indices);
        let target = case.bytes(DType::BF16, &[8, 5, 4, 2]);
        let turned = case.b.transpose(target);
        case.b.set_rows(turned, x, indices);
    }
    case.check();
}

#[test]
fn the_last_of_several_rows_with_one_index_stays() {
    let mut case = Exact::new();
    let x = case.numbers(DType::F32, &[64, 50]);
    let indices: Vec<f64> = (0..50).map(|at| f64::from(at * 7 % 4)).collect();
    let indices = case.values(DType::I64, &[50], &indices);
    for dtype in [DType::F32, DType::Q8_0] {
        let target = case.bytes(dtype, &[64, 6]);
        case.b.set_rows(target, x, indices);
    }
    let target = case.bytes(DType::F32, &[70]);
    let shared = case.b.view(target, [64, 6, 1, 1], [4, 4, 0, 0], 0);
    case.b.set_rows(shared, x, indices);
    case.check();
}

#[test]
fn rows_that_lie_in_their_destination() {
    let mut case = Exact::new();
    let cache = case.numbers(DType::F32, &[8, 9]);
    let rows = case.b.view(cache, [8, 4, 1, 1], [4, 32, 128, 128], 0);
    let indices = case.values(DType::I32, &[4], &[1.0, 2.0, 3.0, 0.0]);
    case.b.set_rows(cache, rows, indices);
    case.check();
}

#[test]
fn nothing() {
    let mut case = Exact::new();
    let table = case.numbers(DType::F32, &[4, 3]);
    let empty = case.numbers(DType::F32, &[4, 0]);
    let none = case.values(DType::I32, &[0], &[]);
    case.b.get_rows(table, none);
    case.b.get_rows(empty, none);
    case.b.set_rows(table, empty, none);
    let planes = case.numbers(DType::F32, &[4, 2, 0]);
    let target = case.numbers(DType::F32, &[4, 3, 0]);
    let wrong = case.values(DType::I32, &[2], &[7.0, -5.0]);
    case.b.set_rows(target, planes, wrong);
    case.check();
}

#[test]
fn bad_indices_are_errors() {
    for index in [-1.0, 3.0, -2147483648.0, 2147483647.0] {
        let mut case = Exact::new();
        let table = case.numbers(DType::F32, &[4, 3]);
        let indices = case.values(DType::I32, &[3], &[1.0, index, -7.0]);
        let y = case.b.get_rows(table, indices);
        case.b.name(y, "looked up");
        let (op, tensor) = ("get_rows".to_owned(), "looked up".to_owned());
        let expected = DeviceError::BadIndex { op, tensor, index: index as i64, rows: 3 };
        assert_eq!(case.error(), expected);
    }
    for index in [-2.0, 3.0, 1e15] {
        let mut case = Exact::new();
        let table = case.numbers(DType::F16, &[4, 3]);
        let rows = case.numbers(DType::F32, &[4, 3]);
        let indices = case.values(DType::I64, &[3], &[-1.0, index, -7.0]);
        let y = case.b.set_rows(table, rows, indices);
        case.b.name(y, "written");
        let (op, tensor) = ("set_rows".to_owned(), "written".to_owned());
        let expected = DeviceError::BadIndex { op, tensor, index: index as i64, rows: 3 };
        assert_eq!(case.error(), expected);
    }
}
