//! Values of the `product` ops, computed by hand.

use orlop_backend::DeviceError;
use orlop_graph::{DType, Op};

use crate::support::{Bench, f32, i32, result, try_result};

#[test]
fn mul_mat_multiplies_rows_by_rows() {
    let a = f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = f32(&[2, 2], &[1.0, 1.0, 10.0, -1.0]);
    assert_eq!(result(Op::MulMat, &[a, b]), [3.0, 7.0, 11.0, 8.0, 26.0, 44.0]);
}

#[test]
fn mul_mat_shares_the_first_operand_among_neighbours() {
    // Four heads of b, two of a: heads 0 and 1 use a's first, 2 and 3 its second.
    let a = f32(&[1, 1, 2], &[2.0, 3.0]);
    let b = f32(&[1, 1, 4], &[1.0, 10.0, 100.0, 1000.0]);
    assert_eq!(result(Op::MulMat, &[a, b]), [2.0, 20.0, 300.0, 3000.0]);
}

#[test]
fn mul_mat_takes_permuted_and_strided_operands() {
    let mut bench = Bench::new();
    let a = bench.f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let transposed = bench.b.transpose(a);
    let wide = bench.f32(&[4, 1], &[9.0, 1.0, 10.0, 9.0]);
    let middle = bench.b.view(wide, [2, 1, 1, 1], [4, 16, 16, 16], 4);
    let y = bench.b.mul_mat(transposed, middle);
    assert_eq!(bench.read(y), [41.0, 52.0, 63.0]);
}

#[test]
fn mul_mat_decodes_quantised_weights() {
    let mut row = [0.0; 32];
    (row[0], row[31]) = (127.0, -2.0);
    let mut x = [1.0; 32];
    x[31] = 10.0;
    let a = (DType::Q8_0, &[32, 1][..], &row[..]);
    let b = (DType::F16, &[32, 1][..], &x[..]);
    assert_eq!(result(Op::MulMat, &[a, b]), [107.0]);
}

#[test]
fn mul_mat_id_uses_the_matrix_that_each_id_names() {
    let a = f32(&[1, 2, 3], &[1.0, 2.0, 10.0, 20.0, 100.0, 200.0]);
    let ids = i32(&[2, 2], &[2.0, 0.0, 1.0, 1.0]);
    // One row a token, used by both of its experts.
    let shared = f32(&[1, 1, 2], &[3.0, 5.0]);
    let expected = [300.0, 600.0, 3.0, 6.0, 50.0, 100.0, 50.0, 100.0];
    assert_eq!(result(Op::MulMatId, &[a, shared, ids]), expected);
    // One row for each expert used.
    let own = f32(&[1, 2, 2], &[3.0, 4.0, 5.0, 6.0]);
    let expected = [300.0, 600.0, 4.0, 8.0, 50.0, 100.0, 60.0, 120.0];
    assert_eq!(result(Op::MulMatId, &[a, own, ids]), expected);
}

#[test]
fn mul_mat_id_refuses_experts_that_are_not_there() {
    let (a, b) = (f32(&[1, 1, 2], &[1.0, 2.0]), f32(&[1, 1, 1], &[1.0]));
    let error = try_result(Op::MulMatId, &[a, b, i32(&[1, 1], &[2.0])]).unwrap_err();
    let (op, tensor) = ("mul_mat_id".to_owned(), "y".to_owned());
    assert_eq!(error, DeviceError::BadIndex { op, tensor, index: 2, rows: 2 });
}

#[test]
fn mul_mat_some_gives_zeros_where_no_matrix_is_chosen() {
    let a = f32(&[1, 2, 3], &[1.0, 2.0, 10.0, 20.0, 100.0, 200.0]);
    let (shared, ids) = (f32(&[1, 1, 2], &[3.0, 5.0]), i32(&[2, 2], &[2.0, -1.0, -1.0, 1.0]));
    assert_eq!(result(Op::MulMatSome, &[a, shared, ids]), [300.0, 600.0, 0.0, 0.0, 0.0, 0.0, 50.0, 100.0]);
    for id in [-2.0, 3.0] {
        let error = try_result(Op::MulMatSome, &[a, shared, i32(&[2, 2], &[0.0, 1.0, id, 0.0])]).unwrap_err();
        let (op, tensor) = ("mul_mat_some".to_owned(), "y".to_owned());
        assert_eq!(error, DeviceError::BadIndex { op, tensor, index: id as i64, rows: 3 });
    }
}

#[test]
fn out_prod_sums_products_of_columns() {
    // Two terms: [1 2] times [10 20 30], and [3 4] times [1 0 0].
    let a = f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = f32(&[3, 2], &[10.0, 20.0, 30.0, 1.0, 0.0, 0.0]);
    assert_eq!(result(Op::OutProd, &[a, b]), [13.0, 24.0, 20.0, 40.0, 30.0, 60.0]);
}

#[test]
fn out_prod_shares_the_first_operand_among_neighbours() {
    let a = f32(&[1, 1, 2], &[2.0, 3.0]);
    let b = f32(&[1, 1, 4], &[1.0, 10.0, 100.0, 1000.0]);
    assert_eq!(result(Op::OutProd, &[a, b]), [2.0, 20.0, 300.0, 3000.0]);
}
