//! Products of matrices.

use orlop_graph::Op;

use super::{accepts, f16, f32, i32, q4, refuses_operand};

#[test]
fn the_first_matrix_repeats_over_the_outer_dimensions() {
    accepts(Op::MulMat, &[q4(&[64, 5]), f32(&[64, 3, 2, 7])], f32(&[5, 3, 2, 7]));
    accepts(Op::MulMat, &[f16(&[64, 5, 2]), f16(&[64, 3, 8])], f32(&[5, 3, 8]));
    accepts(Op::MulMat, &[f32(&[0, 5]), f32(&[0, 3])], f32(&[5, 3]));
    refuses_operand(Op::MulMat, &[f32(&[64, 5, 8]), f32(&[64, 3, 2])], 1);
    refuses_operand(Op::MulMat, &[f32(&[63, 5]), f32(&[64, 3])], 1);
    refuses_operand(Op::MulMat, &[f32(&[64, 5]), q4(&[64, 3])], 1);
    refuses_operand(Op::MulMat, &[i32(&[64, 5]), f32(&[64, 3])], 0);
}

#[test]
fn each_token_has_its_experts() {
    let experts = q4(&[64, 5, 8]);
    for op in [Op::MulMatId, Op::MulMatSome] {
        accepts(op.clone(), &[experts, f32(&[64, 1, 3]), i32(&[2, 3])], f32(&[5, 2, 3]));
        accepts(op.clone(), &[experts, f32(&[64, 2, 3]), i32(&[4, 3])], f32(&[5, 4, 3]));
        refuses_operand(op.clone(), &[experts, f32(&[64, 3, 3]), i32(&[4, 3])], 2);
        refuses_operand(op.clone(), &[experts, f32(&[64, 1, 3]), i32(&[2, 4])], 2);
        refuses_operand(op.clone(), &[experts, f32(&[64, 1, 3]), f32(&[2, 3])], 2);
        refuses_operand(op.clone(), &[experts, f32(&[32, 1, 3]), i32(&[2, 3])], 1);
        refuses_operand(op, &[q4(&[64, 5, 8, 2]), f32(&[64, 1, 3]), i32(&[2, 3])], 0);
    }
}

#[test]
fn outer_products_sum_over_rows() {
    accepts(Op::OutProd, &[f32(&[5, 9, 2]), f32(&[3, 9, 4, 7])], f32(&[5, 3, 4, 7]));
    refuses_operand(Op::OutProd, &[f32(&[5, 9]), f32(&[3, 8])], 1);
    refuses_operand(Op::OutProd, &[i32(&[5, 9]), f32(&[3, 9])], 0);
}
