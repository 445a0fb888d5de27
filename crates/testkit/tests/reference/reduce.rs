//! Values of the `reduce` ops, computed by hand.

use orlop_graph::{Op, SortDirection};

use crate::support::{Bench, f32, result};

const NAN: f64 = f64::NAN;

#[test]
fn sums_and_means() {
    let x = f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 9.0]);
    assert_eq!(result(Op::Sum, &[x]), [24.0]);
    assert_eq!(result(Op::SumRows, &[x]), [6.0, 18.0]);
    assert_eq!(result(Op::Mean, &[x]), [2.0, 6.0]);
    assert_eq!(result(Op::CumSum, &[x]), [1.0, 3.0, 6.0, 4.0, 9.0, 18.0]);
}

#[test]
fn rows_of_permuted_operands_are_their_columns() {
    let mut bench = Bench::new();
    let x = bench.f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 9.0]);
    let transposed = bench.b.transpose(x);
    let y = bench.b.sum_rows(transposed);
    assert_eq!(bench.read(y), [5.0, 7.0, 12.0]);
}

#[test]
fn sums_do_not_lose_small_terms() {
    let x = f32(&[3], &[16777216.0, 1.0, 1.0]);
    assert_eq!(result(Op::Sum, &[x]), [16777218.0]);
}

#[test]
fn argmax_finds_the_first_of_equals() {
    let x = f32(&[3, 2], &[1.0, 5.0, 5.0, -1.0, -3.0, -2.0]);
    assert_eq!(result(Op::ArgMax, &[x]), [1.0, 0.0]);
}

#[test]
fn sorting_is_stable() {
    let x = f32(&[4], &[2.0, 1.0, 2.0, 1.0]);
    let sort = |direction| result(Op::ArgSort { direction }, &[x]);
    assert_eq!(sort(SortDirection::Ascending), [1.0, 3.0, 0.0, 2.0]);
    assert_eq!(sort(SortDirection::Descending), [0.0, 2.0, 1.0, 3.0]);
    assert_eq!(result(Op::TopK { k: 3 }, &[x]), [0.0, 2.0, 1.0]);
}

#[test]
fn nan_is_smaller_than_every_number() {
    let x = f32(&[4], &[NAN, f64::NEG_INFINITY, 1.0, NAN]);
    assert_eq!(result(Op::ArgMax, &[x]), [2.0]);
    let sort = |direction| result(Op::ArgSort { direction }, &[x]);
    assert_eq!(sort(SortDirection::Ascending), [0.0, 3.0, 1.0, 2.0]);
    assert_eq!(sort(SortDirection::Descending), [2.0, 1.0, 0.0, 3.0]);
    assert_eq!(result(Op::TopK { k: 2 }, &[x]), [2.0, 1.0]);
    assert_eq!(result(Op::ArgMax, &[f32(&[2], &[NAN, NAN])]), [0.0]);
}

#[test]
fn each_row_is_sorted_for_itself() {
    let x = f32(&[2, 2], &[1.0, 2.0, 4.0, 3.0]);
    assert_eq!(result(Op::TopK { k: 1 }, &[x]), [1.0, 0.0]);
}
