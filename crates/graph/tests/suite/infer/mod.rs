//! Result descriptions, worked out by hand.

use orlop_graph::{DIMS, DType, Op, OpError, TensorDesc, infer};

mod arithmetic;
mod attention;
mod image;
mod movement;
mod products;
mod reductions;
mod state_space;
mod views;

fn tensor(dtype: DType, extents: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(dtype, extents).expect("a small tensor")
}

fn f32(extents: &[u64]) -> TensorDesc {
    tensor(DType::F32, extents)
}

fn f16(extents: &[u64]) -> TensorDesc {
    tensor(DType::F16, extents)
}

fn i32(extents: &[u64]) -> TensorDesc {
    tensor(DType::I32, extents)
}

fn q4(extents: &[u64]) -> TensorDesc {
    tensor(DType::Q4_0, extents)
}

/// Padded rows: 16 bytes more than the elements take.
fn gaps(extents: [u64; DIMS]) -> TensorDesc {
    let row = 4 * extents[0] + 16;
    let strides = [4, row, row * extents[1], row * extents[1] * extents[2]];
    TensorDesc::strided(DType::F32, extents, strides).expect("a small tensor")
}

#[track_caller]
fn accepts(op: Op, operands: &[TensorDesc], result: TensorDesc) {
    assert_eq!(infer(&op, operands), Ok(result), "{op} of {operands:?}");
}

#[track_caller]
fn refuses_operand(op: Op, operands: &[TensorDesc], wrong: usize) {
    match infer(&op, operands) {
        Err(
            OpError::DType { operand, .. }
            | OpError::Extents { operand, .. }
            | OpError::NotContiguous { operand },
        ) => {
            assert_eq!(operand, wrong, "{op} of {operands:?}");
        }
        other => panic!("{op} of {operands:?}: {other:?}"),
    }
}

#[track_caller]
fn refuses_parameter(op: Op, operands: &[TensorDesc], wrong: &str) {
    match infer(&op, operands) {
        Err(OpError::Parameter { name, .. }) => assert_eq!(name, wrong, "{op} of {operands:?}"),
        other => panic!("{op} of {operands:?}: {other:?}"),
    }
}

#[track_caller]
fn refuses_count(op: Op, operands: &[TensorDesc]) {
    let refused = infer(&op, operands);
    assert!(
        matches!(refused, Err(OpError::Operands { given, .. }) if given == operands.len()),
        "{op}: {refused:?}"
    );
}

#[test]
fn operands_made_by_hand_are_checked() {
    let huge = TensorDesc { dtype: DType::F32, extents: [u64::MAX; DIMS], strides: [4; DIMS] };
    let partial = TensorDesc { dtype: DType::Q4_0, extents: [33, 1, 1, 1], strides: [18; DIMS] };
    for wrong in [huge, partial] {
        assert!(matches!(infer(&Op::ArgMax, &[wrong]), Err(OpError::Desc(_))));
    }
}

#[test]
fn every_op_counts_its_operands() {
    for op in crate::dice::one_of_each() {
        if matches!(op, Op::Concat { .. }) {
            refuses_count(op, &[]);
        } else if !matches!(op, Op::Custom { .. }) {
            refuses_count(op, &[f32(&[1]); 9]);
        }
    }
}
