//! State-space models ([Mamba](https://arxiv.org/abs/2312.00752)).

use super::checks::{divides, dtype, extents_of, floats, product, too_large};
use super::info::{Arity, Cost, CostOf};
use crate::{DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

const ANY: OpInfo = OpInfo::of_family("ssm");

pub(super) const SSM_CONV: OpInfo =
    OpInfo { name: "ssm_conv", operands: Arity::exactly(2), sample: |_| Op::SsmConv, ..ANY };

pub(super) fn ssm_conv(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    floats(x, 1)?;
    let [padded, inner, seqs, one] = x[0].extents;
    let [k, channels, 1, 1] = x[1].extents else {
        return Err(extents_of(x, 1, "must have two dimensions"));
    };
    if k == 0 || channels != inner {
        return Err(extents_of(x, 1, "must have one row a channel"));
    }
    let tokens = padded.checked_sub(k - 1).filter(|_| one == 1);
    let tokens = tokens.ok_or(extents_of(x, 0, "rows must be the tokens and one kernel less one"))?;
    Ok(TensorDesc::contiguous(DType::F32, &[inner, tokens, seqs])?)
}

pub(super) const SSM_SCAN: OpInfo =
    OpInfo { name: "ssm_scan", operands: Arity::exactly(7), sample: |_| Op::SsmScan, ..ANY };

pub(super) fn ssm_scan(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    for slot in 0..6 {
        dtype(x, slot, x[slot].dtype == DType::F32, "f32")?;
    }
    dtype(x, 6, x[6].dtype == DType::I32, "i32")?;
    let [state, head, heads, _] = x[0].extents;
    let [x_head, x_heads, tokens, seqs] = x[1].extents;
    if [x_head, x_heads] != [head, heads] {
        return Err(extents_of(x, 1, "heads must be the state's"));
    }
    if x[2].extents != [heads, tokens, seqs, 1] {
        return Err(extents_of(x, 2, "must be one step a head, token and sequence"));
    }
    let [decays, a_heads, a2, a3] = x[3].extents;
    if [a_heads, a2, a3] != [heads, 1, 1] || !(decays == state || decays == 1) {
        return Err(extents_of(x, 3, "must be one row a head"));
    }
    for slot in [4, 5] {
        let [rows, groups, t, s] = x[slot].extents;
        if [rows, t, s] != [state, tokens, seqs] || !divides(groups, heads) {
            return Err(extents_of(x, slot, "must be one row a group, token and sequence"));
        }
    }
    if x[5].extents != x[4].extents {
        return Err(extents_of(x, 5, "must have as many groups as the operand before it"));
    }
    if x[6].elements() != seqs {
        return Err(extents_of(x, 6, "must be one state a sequence"));
    }
    let states = product(&[state, head, heads, seqs], DType::F32)?;
    let total = states.checked_add(x[1].elements()).ok_or(too_large(DType::F32, x[0].extents))?;
    Ok(TensorDesc::contiguous(DType::F32, &[total])?)
}

pub(super) const DELTA_SCAN: OpInfo = OpInfo {
    name: "delta_scan",
    operands: Arity::exactly(8),
    cost: Cost { per_element: 8.0, times: &[(0, 1)] },
    cost_of: CostOf::Operand(4),
    sample: |_| Op::DeltaScan,
    ..ANY
};

pub(super) fn delta_scan(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    for slot in 0..7 {
        dtype(x, slot, x[slot].dtype == DType::F32, "f32")?;
    }
    dtype(x, 7, x[7].dtype == DType::I32, "i32")?;
    let [value, key, heads, _] = x[0].extents;
    let [_, _, tokens, seqs] = x[1].extents;
    for slot in [1, 2, 3, 5, 6] {
        let [row, rest @ ..] = x[slot].extents;
        if rest != [heads, tokens, seqs] || !(row == key || slot == 2 && row == 1) {
            return Err(extents_of(x, slot, "must be one row of keys a head, token and sequence"));
        }
    }
    if x[4].extents != [value, heads, tokens, seqs] {
        return Err(extents_of(x, 4, "must be one row of values a head, token and sequence"));
    }
    if x[7].elements() != seqs {
        return Err(extents_of(x, 7, "must be one state a sequence"));
    }
    let states = product(&[value, key, heads, seqs], DType::F32)?;
    let total = states.checked_add(x[4].elements()).ok_or(too_large(DType::F32, x[0].extents))?;
    Ok(TensorDesc::contiguous(DType::F32, &[total])?)
}

/// State-space models.
impl GraphBuilder {
    /// [`Op::SsmConv`].
    pub fn ssm_conv(&mut self, x: TensorId, kernel: TensorId) -> TensorId {
        self.node(Op::SsmConv, &[x, kernel])
    }

    /// [`Op::SsmScan`] of `[s, x, dt, a, b, c, ids]`.
    pub fn ssm_scan(&mut self, operands: [TensorId; 7]) -> TensorId {
        self.node(Op::SsmScan, &operands)
    }

    /// [`Op::DeltaScan`] of `[s, r, w, k, v, a, b, ids]`.
    pub fn delta_scan(&mut self, operands: [TensorId; 8]) -> TensorId {
        self.node(Op::DeltaScan, &operands)
    }
}
