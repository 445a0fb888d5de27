//! Values of the `arithmetic` ops, computed by hand.

use std::f64::consts::{E, LN_2};

use orlop_graph::{DType, Glu, Op, Unary};

use crate::support::{Bench, assert_close, f32, result};

#[test]
fn the_four_operations() {
    let (a, b) = (f32(&[3], &[6.0, -8.0, 1.0]), f32(&[3], &[2.0, 4.0, -4.0]));
    assert_eq!(result(Op::Add, &[a, b]), [8.0, -4.0, -3.0]);
    assert_eq!(result(Op::Sub, &[a, b]), [4.0, -12.0, 5.0]);
    assert_eq!(result(Op::Mul, &[a, b]), [12.0, -32.0, -4.0]);
    assert_eq!(result(Op::Div, &[a, b]), [3.0, -2.0, -0.25]);
    assert_eq!(result(Op::Add1, &[a, f32(&[1], &[0.5])]), [6.5, -7.5, 1.5]);
}

#[test]
fn the_second_operand_is_repeated_along_every_dimension() {
    let a = f32(&[4, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let row = f32(&[2], &[10.0, 20.0]);
    assert_eq!(result(Op::Add, &[a, row]), [11.0, 22.0, 13.0, 24.0, 15.0, 26.0, 17.0, 28.0]);
    let column = f32(&[1, 2], &[10.0, 20.0]);
    assert_eq!(result(Op::Sub, &[a, column]), [-9.0, -8.0, -7.0, -6.0, -15.0, -14.0, -13.0, -12.0]);
}

#[test]
fn permuted_operands_are_read_in_element_order() {
    let mut bench = Bench::new();
    let a = bench.f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let transposed = bench.b.transpose(a);
    let y = bench.b.mul(transposed, a);
    assert_eq!(bench.read(y), [1.0, 6.0, 6.0, 16.0]);
}

#[test]
fn results_are_rounded_when_they_are_stored_and_not_before() {
    // In F16, 2048 + 1 would be 2048 again; F32 keeps it.
    let half = (DType::F16, &[2][..], &[2048.0, 1.0][..]);
    let one = f32(&[1], &[1.0]);
    assert_eq!(result(Op::Add, &[half, one]), [2048.0, 2.0]);
    assert_eq!(result(Op::Scale { scale: 0.5, bias: 0.5 }, &[half]), [1024.0, 1.0]);
}

#[test]
fn scale_and_clamp() {
    let x = f32(&[4], &[-2.0, 0.0, 3.0, f64::NAN]);
    assert_close(&result(Op::Scale { scale: 2.0, bias: 1.0 }, &[x])[..3], &[-3.0, 1.0, 7.0]);
    let clamped = result(Op::Clamp { min: -1.0, max: 2.0 }, &[x]);
    assert_eq!(clamped[..3], [-1.0, 0.0, 2.0]);
    assert!(clamped[3].is_nan());
    // A range that is none: its beginning wins.
    assert_eq!(result(Op::Clamp { min: 5.0, max: 1.0 }, &[f32(&[1], &[3.0])]), [5.0]);
}

#[test]
fn functions_of_one_element() {
    let x = &[-1.0, 0.0, 1.0, 2.0];
    let table: [(Unary, [f64; 4]); 19] = [
        (Unary::Sqr, [1.0, 0.0, 1.0, 4.0]),
        (Unary::Exp, [0.367879441, 1.0, E, 7.389056099]),
        (Unary::Sin, [-0.841470985, 0.0, 0.841470985, 0.909297427]),
        (Unary::Cos, [0.540302306, 1.0, 0.540302306, -0.416146837]),
        (Unary::Neg, [1.0, 0.0, -1.0, -2.0]),
        (Unary::Abs, [1.0, 0.0, 1.0, 2.0]),
        (Unary::Sgn, [-1.0, 0.0, 1.0, 1.0]),
        (Unary::Step, [0.0, 0.0, 1.0, 1.0]),
        (Unary::Relu, [0.0, 0.0, 1.0, 2.0]),
        (Unary::Gelu, [-0.158808009, 0.0, 0.841191991, 1.954597694]),
        (Unary::GeluErf, [-0.158655254, 0.0, 0.841344746, 1.954499736]),
        (Unary::GeluQuick, [-0.154204234, 0.0, 0.845795766, 1.935658623]),
        (Unary::Silu, [-0.268941421, 0.0, 0.731058579, 1.761594156]),
        (Unary::Sigmoid, [0.268941421, 0.5, 0.731058579, 0.880797078]),
        (Unary::Tanh, [-0.761594156, 0.0, 0.761594156, 0.964027580]),
        (Unary::Elu, [-0.632120559, 0.0, 1.0, 2.0]),
        (Unary::HardSwish, [-0.333333333, 0.0, 0.666666667, 1.666666667]),
        (Unary::HardSigmoid, [0.333333333, 0.5, 0.666666667, 0.833333333]),
        (Unary::Softplus, [0.313261688, LN_2, 1.313261688, 2.126928011]),
    ];
    for (function, expected) in table {
        assert_close(&result(Op::Unary(function), &[f32(&[4], x)]), &expected);
    }
    let positive = f32(&[3], &[0.25, 1.0, 4.0]);
    assert_close(&result(Op::Unary(Unary::Sqrt), &[positive]), &[0.5, 1.0, 2.0]);
    assert_close(&result(Op::Unary(Unary::Log), &[positive]), &[-1.386294361, 0.0, 1.386294361]);
}

#[test]
fn functions_hold_at_the_ends() {
    let x = f32(&[4], &[-100.0, 100.0, -1000.0, 1000.0]);
    assert_close(&result(Op::Unary(Unary::Softplus), &[x]), &[0.0, 100.0, 0.0, 1000.0]);
    assert_close(&result(Op::Unary(Unary::Sigmoid), &[x]), &[0.0, 1.0, 0.0, 1.0]);
    assert_close(&result(Op::Unary(Unary::Silu), &[x]), &[0.0, 100.0, 0.0, 1000.0]);
    assert_close(&result(Op::Unary(Unary::GeluErf), &[x]), &[0.0, 100.0, 0.0, 1000.0]);
    assert_close(&result(Op::Unary(Unary::HardSwish), &[x]), &[0.0, 100.0, 0.0, 1000.0]);
    assert_close(&result(Op::Unary(Unary::Elu), &[x]), &[-1.0, 100.0, -1.0, 1000.0]);
}

#[test]
fn leaky_relu_has_a_slope_below_zero() {
    assert_eq!(result(Op::LeakyRelu { slope: 0.25 }, &[f32(&[3], &[-2.0, 0.0, 2.0])]), [-0.5, 0.0, 2.0]);
}

#[test]
fn gated_ops_take_two_operands_or_the_halves_of_rows() {
    let (a, b) = (f32(&[2], &[1.0, -1.0]), f32(&[2], &[2.0, 4.0]));
    let table = [
        (Glu::Relu, [2.0, 0.0]),
        (Glu::Gelu, [1.682383981, -0.635232038]),
        (Glu::GeluErf, [1.682689492, -0.634621016]),
        (Glu::GeluQuick, [1.691591532, -0.616816936]),
        (Glu::Silu, [1.462117157, -1.075765686]),
    ];
    for (gate, expected) in table {
        assert_close(&result(Op::Gated { gate, swapped: false }, &[a, b]), &expected);
    }
    let rows = f32(&[4, 2], &[1.0, 2.0, 3.0, 4.0, -5.0, 6.0, 7.0, 8.0]);
    let first = Op::Gated { gate: Glu::Relu, swapped: false };
    assert_eq!(result(first, &[rows]), [3.0, 8.0, 0.0, 48.0]);
    let swapped = Op::Gated { gate: Glu::Relu, swapped: true };
    assert_eq!(result(swapped, &[rows]), [3.0, 8.0, -35.0, 48.0]);
}
