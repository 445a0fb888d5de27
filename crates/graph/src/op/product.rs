//! Products of matrices.

use super::checks::{divides, dtype, extents_of, left_hand, right_hand};
use super::info::{Arity, Cost};
use crate::{DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

const ANY: OpInfo = OpInfo { operands: Arity::exactly(2), ..OpInfo::of_family("product") };

pub(super) const MUL_MAT: OpInfo =
    OpInfo { name: "mul_mat", cost: Cost::multiply_add(&[(0, 0)]), sample: |_| Op::MulMat, ..ANY };

pub(super) fn mul_mat(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    left_hand(x, 0)?;
    right_hand(x, 1)?;
    let [k, m, a2, a3] = x[0].extents;
    let [kb, n, b2, b3] = x[1].extents;
    if k != kb || !divides(a2, b2) || !divides(a3, b3) {
        let rule = "rows must be as long as the first operand's, outer extents multiples";
        return Err(extents_of(x, 1, rule));
    }
    Ok(TensorDesc::contiguous(DType::F32, &[m, n, b2, b3])?)
}

pub(super) const MUL_MAT_ID: OpInfo = OpInfo {
    name: "mul_mat_id",
    operands: Arity::exactly(3),
    cost: Cost::multiply_add(&[(0, 0)]),
    sample: |_| Op::MulMatId,
    ..ANY
};

pub(super) const MUL_MAT_SOME: OpInfo =
    OpInfo { name: "mul_mat_some", sample: |_| Op::MulMatSome, ..MUL_MAT_ID };

pub(super) fn mul_mat_id(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    left_hand(x, 0)?;
    right_hand(x, 1)?;
    dtype(x, 2, x[2].dtype == DType::I32, "i32")?;
    let [k, m, _, one] = x[0].extents;
    let [kb, each, tokens, last] = x[1].extents;
    let [used, ids_tokens, i2, i3] = x[2].extents;
    if one != 1 {
        return Err(extents_of(x, 0, "must be one matrix an expert"));
    }
    if k != kb || last != 1 {
        return Err(extents_of(x, 1, "rows must be as long as the matrices', three dimensions"));
    }
    if ids_tokens != tokens || i2 != 1 || i3 != 1 || !divides(each, used) {
        return Err(extents_of(x, 2, "must be the experts used by each token"));
    }
    Ok(TensorDesc::contiguous(DType::F32, &[m, used, tokens])?)
}

pub(super) const OUT_PROD: OpInfo =
    OpInfo { name: "out_prod", cost: Cost::multiply_add(&[(0, 1)]), sample: |_| Op::OutProd, ..ANY };

pub(super) fn out_prod(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    left_hand(x, 0)?;
    right_hand(x, 1)?;
    let [m, k, a2, a3] = x[0].extents;
    let [n, kb, b2, b3] = x[1].extents;
    if k != kb || !divides(a2, b2) || !divides(a3, b3) {
        return Err(extents_of(x, 1, "must have the first operand's rows, outer extents multiples"));
    }
    Ok(TensorDesc::contiguous(DType::F32, &[m, n, b2, b3])?)
}

/// Products.
impl GraphBuilder {
    /// [`Op::MulMat`].
    pub fn mul_mat(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::MulMat, &[a, b])
    }

    /// [`Op::MulMatId`].
    pub fn mul_mat_id(&mut self, a: TensorId, b: TensorId, ids: TensorId) -> TensorId {
        self.node(Op::MulMatId, &[a, b, ids])
    }

    /// [`Op::MulMatSome`].
    pub fn mul_mat_some(&mut self, a: TensorId, b: TensorId, ids: TensorId) -> TensorId {
        self.node(Op::MulMatSome, &[a, b, ids])
    }

    /// [`Op::OutProd`].
    pub fn out_prod(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::OutProd, &[a, b])
    }
}
