//! Copies, rows, patches and rearrangements.

use orlop_graph::{DType, Op, OpError, Patch, TensorDesc, infer};

use super::{accepts, f16, f32, gaps, i32, q4, refuses_operand, refuses_parameter, tensor};

#[test]
fn copies_are_gapless() {
    accepts(Op::Dup, &[gaps([3, 2, 1, 1])], f32(&[3, 2]));
    accepts(Op::Cont, &[gaps([3, 2, 1, 1])], f32(&[3, 2]));
    accepts(Op::Cast { dtype: DType::Q4_0 }, &[f32(&[64, 3])], q4(&[64, 3]));
    let partial = infer(&Op::Cast { dtype: DType::Q4_0 }, &[f32(&[48])]);
    assert!(matches!(partial, Err(OpError::Desc(_))));
}

#[test]
fn a_copy_is_its_destination_whatever_the_extents_of_the_source() {
    accepts(Op::Copy, &[f32(&[6]), gaps([3, 2, 1, 1])], gaps([3, 2, 1, 1]));
    accepts(Op::Copy, &[f32(&[2, 3]), f16(&[6])], f16(&[6]));
    refuses_operand(Op::Copy, &[f32(&[2, 3]), f16(&[7])], 0);
}

#[test]
fn rows_are_found_in_the_matching_outer_dimensions() {
    accepts(Op::GetRows, &[q4(&[64, 100]), i32(&[7])], f32(&[64, 7]));
    accepts(Op::GetRows, &[f16(&[8, 10, 3, 2]), i32(&[5, 3, 2])], f32(&[8, 5, 3, 2]));
    accepts(Op::GetRows, &[i32(&[8, 10]), i32(&[5])], i32(&[8, 5]));
    refuses_operand(Op::GetRows, &[f32(&[8, 10, 3]), i32(&[5])], 1);
    refuses_operand(Op::GetRows, &[f32(&[8, 10]), tensor(DType::I64, &[5])], 1);
    refuses_operand(Op::GetRows, &[f32(&[8, 10]), i32(&[5, 1, 1, 2])], 1);
}

#[test]
fn row_indices_repeat_over_outer_dimensions() {
    let i64 = |extents: &[u64]| tensor(DType::I64, extents);
    let cache = f16(&[64, 256, 4]);
    accepts(Op::SetRows, &[cache, f32(&[64, 5, 4]), i64(&[5])], cache);
    accepts(Op::SetRows, &[cache, f32(&[64, 5, 4]), i32(&[5, 2])], cache);
    refuses_operand(Op::SetRows, &[cache, f32(&[64, 5, 4]), i32(&[5, 3])], 2);
    refuses_operand(Op::SetRows, &[cache, f32(&[64, 5, 4]), f32(&[5])], 2);
    refuses_operand(Op::SetRows, &[cache, f32(&[64, 5, 2]), i32(&[5])], 1);
    refuses_operand(Op::SetRows, &[cache, i32(&[64, 5, 4]), i32(&[5])], 1);
}

#[test]
fn patches_lie_inside_their_base() {
    let base = f32(&[8, 4]);
    let at = |offset| Patch { strides: [32, 128, 128], offset };
    for op in [Op::Set as fn(Patch) -> Op, Op::Acc] {
        accepts(op(at(112)), &[base, f32(&[4])], base);
        let outside = infer(&op(at(116)), &[base, f32(&[4])]);
        assert_eq!(outside, Err(OpError::OutsideStorage { end: 132, bytes: 128 }));
        refuses_operand(op(at(0)), &[base, f16(&[4])], 1);
        refuses_operand(op(at(0)), &[gaps([8, 4, 1, 1]), f32(&[4])], 0);
        let folded = Patch { strides: [0; 3], offset: 0 };
        refuses_operand(op(folded), &[base, f32(&[8, 5])], 1);
    }
    accepts(Op::Set(at(0)), &[i32(&[8, 4]), i32(&[4])], i32(&[8, 4]));
    refuses_operand(Op::Acc(at(0)), &[i32(&[8, 4]), i32(&[4])], 0);
}

#[test]
fn a_patch_steps_by_elements_whatever_the_base_says_of_an_extent_of_one() {
    let base = TensorDesc::strided(DType::F32, [1, 6, 1, 1], [900, 4, 24, 24]).unwrap();
    accepts(Op::Set(Patch { strides: [24; 3], offset: 8 }), &[base, f32(&[4])], f32(&[1, 6]));
}

#[test]
fn repeats_are_whole() {
    accepts(Op::Repeat { extents: [6, 4, 2, 1] }, &[f32(&[3, 4])], f32(&[6, 4, 2]));
    refuses_operand(Op::Repeat { extents: [7, 4, 2, 1] }, &[f32(&[3, 4])], 0);
    refuses_operand(Op::Repeat { extents: [7, 1, 1, 1] }, &[f32(&[0])], 0);
}

#[test]
fn concatenation_adds_extents_along_its_axis() {
    let op = Op::Concat { axis: 1 };
    accepts(op.clone(), &[f32(&[3, 4]), f32(&[3, 5]), f32(&[3, 0])], f32(&[3, 9]));
    accepts(op.clone(), &[f32(&[3, 4])], f32(&[3, 4]));
    refuses_operand(op.clone(), &[f32(&[3, 4]), f32(&[3, 5]), f32(&[2, 5])], 2);
    refuses_operand(op, &[f32(&[3, 4]), f16(&[3, 4])], 1);
    refuses_parameter(Op::Concat { axis: 4 }, &[f32(&[3])], "axis");
}

#[test]
fn padding_and_rolling_move_elements_not_blocks() {
    let pad = Op::Pad { before: [1, 0, 2, 0], after: [2, 3, 0, 0] };
    accepts(pad.clone(), &[gaps([3, 2, 1, 1])], f32(&[6, 5, 3]));
    refuses_operand(Op::Pad { before: [16, 0, 0, 0], after: [16, 0, 0, 0] }, &[q4(&[32])], 0);
    let full = Op::Pad { before: [u64::MAX, 0, 0, 0], after: [0; 4] };
    assert!(matches!(infer(&full, &[f32(&[3])]), Err(OpError::Desc(_))));
    let roll = Op::Roll { shifts: [-1, i64::MIN, 7, 0] };
    accepts(roll.clone(), &[f32(&[3, 2])], f32(&[3, 2]));
    refuses_operand(roll, &[q4(&[32])], 0);
}

#[test]
fn ranges_end_before_stop() {
    let range = |start, stop, step| Op::Arange { start, stop, step };
    accepts(range(0.0, 10.0, 3.0), &[], f32(&[4]));
    accepts(range(0.0, 0.3, 0.1), &[], f32(&[3]));
    accepts(range(5.0, 1.0, -2.0), &[], f32(&[2]));
    accepts(range(1.0, 1.0, 1.0), &[], f32(&[0]));
    for (start, stop, step) in
        [(0.0, 1.0, 0.0), (0.0, 1.0, -1.0), (0.0, f32::INFINITY, 1.0), (f32::NAN, 1.0, 1.0), (0.0, 0.0, 0.0)]
    {
        refuses_parameter(range(start, stop, step), &[], "step");
    }
}
