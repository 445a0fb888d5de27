//! Views.

use orlop_graph::{DType, Op, OpError, TensorDesc, infer};

use super::{accepts, f32, gaps, q4, refuses_operand, refuses_parameter};

fn view(extents: [u64; 4], strides: [u64; 4], offset: u64) -> Op {
    Op::View { extents, strides, offset }
}

#[test]
fn a_view_may_end_where_its_operand_ends() {
    let x = f32(&[8, 4]); // 128 bytes
    let desc = TensorDesc::strided(DType::F32, [4, 4, 1, 1], [4, 32, 128, 128]).unwrap();
    accepts(view([4, 4, 1, 1], [4, 32, 128, 128], 16), &[x], desc);
    let beyond = infer(&view([4, 4, 1, 1], [4, 32, 128, 128], 20), &[x]);
    assert_eq!(beyond, Err(OpError::OutsideStorage { end: 132, bytes: 128 }));
    let wraps = infer(&view([4, 4, 1, 1], [4, 32, 128, 128], u64::MAX - 3), &[x]);
    assert_eq!(wraps, Err(OpError::OutsideStorage { end: u64::MAX, bytes: 128 }));
}

#[test]
fn an_empty_view_may_lie_at_the_end_but_not_behind_it() {
    let x = f32(&[8]);
    assert!(infer(&view([0, 1, 1, 1], [4; 4], 32), &[x]).is_ok());
    assert!(infer(&view([0, 1, 1, 1], [4; 4], 33), &[x]).is_err());
}

#[test]
fn a_view_keeps_whole_blocks() {
    let x = q4(&[64, 2]);
    let desc = TensorDesc::strided(DType::Q4_0, [32, 2, 1, 1], [18, 36, 72, 72]).unwrap();
    accepts(view([32, 2, 1, 1], [18, 36, 72, 72], 18), &[x], desc);
    assert!(matches!(infer(&view([16, 2, 1, 1], [18, 36, 72, 72], 0), &[x]), Err(OpError::Desc(_))));
}

#[test]
fn reshapes_keep_the_elements_of_gapless_operands() {
    let op = |extents| Op::Reshape { extents };
    accepts(op([6, 4, 1, 1]), &[f32(&[2, 3, 4])], f32(&[6, 4]));
    accepts(op([0, 9, 1, 1]), &[f32(&[5, 0])], f32(&[0, 9]));
    refuses_operand(op([5, 5, 1, 1]), &[f32(&[2, 3, 4])], 0);
    refuses_operand(op([6, 1, 1, 1]), &[gaps([3, 2, 1, 1])], 0);
}

#[test]
fn dimension_i_becomes_dimension_axes_i() {
    let x = f32(&[2, 3, 5, 7]); // strides 4 8 24 120
    let desc = TensorDesc::strided(DType::F32, [5, 2, 7, 3], [24, 4, 120, 8]).unwrap();
    accepts(Op::Permute { axes: [1, 3, 0, 2] }, &[x], desc);
    refuses_parameter(Op::Permute { axes: [0, 1, 2, 2] }, &[x], "axes");
    refuses_parameter(Op::Permute { axes: [0, 1, 2, 4] }, &[x], "axes");
}

#[test]
fn blocks_stay_innermost() {
    let x = q4(&[32, 3, 2]);
    let desc = TensorDesc::strided(DType::Q4_0, [32, 2, 3, 1], [18, 54, 18, 108]).unwrap();
    accepts(Op::Permute { axes: [0, 2, 1, 3] }, &[x], desc);
    refuses_operand(Op::Permute { axes: [1, 0, 2, 3] }, &[x], 0);
    refuses_operand(Op::Transpose, &[x], 0);
    let turned = TensorDesc::strided(DType::F32, [3, 2, 1, 1], [8, 4, 24, 24]).unwrap();
    accepts(Op::Transpose, &[f32(&[2, 3])], turned);
}
