//! Sums of rows and of whole tensors.

use super::checks::floats;
use crate::{GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

const ANY: OpInfo = OpInfo::of_family("reduce");

pub(super) const SUM: OpInfo = OpInfo { name: "sum", sample: |_| Op::Sum, ..ANY };

pub(super) fn sum(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    Ok(TensorDesc::contiguous(x[0].dtype, &[1])?)
}

pub(super) const SUM_ROWS: OpInfo = OpInfo { name: "sum_rows", sample: |_| Op::SumRows, ..ANY };
pub(super) const MEAN: OpInfo = OpInfo { name: "mean", sample: |_| Op::Mean, ..ANY };

pub(super) fn one_per_row(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    let [_, a, b, c] = x[0].extents;
    Ok(TensorDesc::contiguous(x[0].dtype, &[1, a, b, c])?)
}

pub(super) const CUMSUM: OpInfo = OpInfo { name: "cumsum", overwrites: &[0], sample: |_| Op::CumSum, ..ANY };

/// Sums.
impl GraphBuilder {
    /// [`Op::Sum`].
    pub fn sum(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Sum, &[x])
    }

    /// [`Op::SumRows`].
    pub fn sum_rows(&mut self, x: TensorId) -> TensorId {
        self.node(Op::SumRows, &[x])
    }

    /// [`Op::Mean`].
    pub fn mean(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Mean, &[x])
    }

    /// [`Op::CumSum`].
    pub fn cumsum(&mut self, x: TensorId) -> TensorId {
        self.node(Op::CumSum, &[x])
    }
}
