//! Functions of elements.

use orlop_graph::{DType, Glu, Op, OpError, Unary, infer};

use super::{accepts, f16, f32, gaps, i32, q4, refuses_operand, refuses_parameter};

#[test]
fn the_second_operand_repeats_and_the_first_gives_the_type() {
    for op in [Op::Add, Op::Sub, Op::Mul, Op::Div] {
        accepts(op.clone(), &[gaps([6, 4, 1, 1]), f32(&[6, 1])], f32(&[6, 4]));
        accepts(op.clone(), &[f16(&[6, 4]), f32(&[3, 2])], f16(&[6, 4]));
        accepts(op.clone(), &[f32(&[6, 0]), f32(&[6, 1])], f32(&[6, 0]));
        refuses_operand(op.clone(), &[f32(&[6, 1]), f32(&[6, 4])], 1);
        refuses_operand(op.clone(), &[f32(&[6, 1]), f32(&[0])], 1);
        refuses_operand(op.clone(), &[i32(&[6]), f32(&[6])], 0);
        refuses_operand(op, &[f32(&[32]), q4(&[32])], 1);
    }
}

#[test]
fn add1_takes_one_element() {
    accepts(Op::Add1, &[f32(&[6, 4]), f32(&[1])], f32(&[6, 4]));
    refuses_operand(Op::Add1, &[f32(&[6, 4]), f32(&[2])], 1);
}

#[test]
fn functions_of_elements_keep_extents_and_type() {
    let infinite = f32::INFINITY;
    let mut ops = vec![
        Op::Scale { scale: 2.0, bias: 1.0 },
        Op::Clamp { min: -infinite, max: infinite },
        Op::LeakyRelu { slope: 0.1 },
        Op::CumSum,
        Op::Norm { eps: 1e-5 },
        Op::RmsNorm { eps: 1e-5 },
        Op::L2Norm { eps: 1e-5 },
        Op::DiagMaskInf { past: 1 },
        Op::DiagMaskZero { past: 1 },
        Op::GroupNorm { groups: 1, eps: 1e-5 },
    ];
    ops.extend(Unary::ALL.map(Op::Unary));
    for op in ops {
        accepts(op.clone(), &[gaps([6, 4, 1, 1])], f32(&[6, 4]));
        accepts(op.clone(), &[f16(&[6, 4])], f16(&[6, 4]));
        refuses_operand(op.clone(), &[i32(&[6, 4])], 0);
        refuses_operand(op, &[q4(&[32])], 0);
    }
}

#[test]
fn groups_are_channels_at_least() {
    let op = |groups| Op::GroupNorm { groups, eps: 1e-5 };
    accepts(op(3), &[f32(&[2, 2, 3])], f32(&[2, 2, 3]));
    refuses_parameter(op(4), &[f32(&[2, 2, 3])], "groups");
    refuses_parameter(op(0), &[f32(&[2, 2, 3])], "groups");
}

#[test]
fn gates_take_two_halves_or_one_row_of_both() {
    for gate in [Glu::Relu, Glu::Gelu, Glu::GeluErf, Glu::GeluQuick, Glu::Silu] {
        let op = Op::Gated { gate, swapped: false };
        accepts(op.clone(), &[f16(&[6, 4]), f16(&[6, 4])], f16(&[6, 4]));
        accepts(op.clone(), &[f32(&[6, 4])], f32(&[3, 4]));
        refuses_operand(op.clone(), &[f32(&[7, 4])], 0);
        refuses_operand(op.clone(), &[f32(&[6, 4]), f32(&[6, 1])], 1);
        refuses_operand(op, &[f32(&[6, 4]), f16(&[6, 4])], 1);
    }
}

#[test]
fn custom_ops_say_what_they_give() {
    let op = |dtype, extents| Op::Custom { name: "mine".into(), dtype, extents, overwrites: vec![] };
    accepts(op(DType::Q4_0, [32, 2, 1, 1]), &[], q4(&[32, 2]));
    accepts(op(DType::I32, [5, 1, 1, 1]), &[f32(&[3]), f16(&[2])], i32(&[5]));
    assert!(matches!(infer(&op(DType::Q4_0, [33, 2, 1, 1]), &[]), Err(OpError::Desc(_))));
}
