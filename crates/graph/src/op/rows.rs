//! Rows of tables, read and written by index.

use super::checks::{divides, dtype, extents_of};
use super::info::Arity;
use crate::{DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

const ANY: OpInfo = OpInfo::of_family("rows");

pub(super) const GET_ROWS: OpInfo =
    OpInfo { name: "get_rows", operands: Arity::exactly(2), sample: |_| Op::GetRows, ..ANY };

pub(super) fn get_rows(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    dtype(x, 1, x[1].dtype == DType::I32, "i32")?;
    let [k, outer2, outer3, last] = x[1].extents;
    if x[0].extents[2] != outer2 || x[0].extents[3] != outer3 || last != 1 {
        return Err(extents_of(x, 1, "outer extents must be the table's, one dimension down"));
    }
    let result = if x[0].dtype == DType::I32 { DType::I32 } else { DType::F32 };
    Ok(TensorDesc::contiguous(result, &[x[0].extents[0], k, outer2, outer3])?)
}

pub(super) const SET_ROWS: OpInfo = OpInfo {
    name: "set_rows",
    operands: Arity::exactly(3),
    storage: Some(0),
    sample: |_| Op::SetRows,
    ..ANY
};

pub(super) fn set_rows(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    dtype(x, 1, x[1].dtype.is_float(), "a floating-point type")?;
    dtype(x, 2, matches!(x[2].dtype, DType::I32 | DType::I64), "i32 or i64")?;
    let (into, rows, at) = (x[0].extents, x[1].extents, x[2].extents);
    if into[0] != rows[0] || into[2] != rows[2] || into[3] != rows[3] {
        return Err(extents_of(x, 1, "must be the destination's but for the number of rows"));
    }
    if at[0] != rows[1] || !divides(at[1], rows[2]) || !divides(at[2], rows[3]) || at[3] != 1 {
        return Err(extents_of(x, 2, "must be one index a row, repeated over outer dimensions"));
    }
    Ok(x[0])
}

/// Rows by index.
impl GraphBuilder {
    /// [`Op::GetRows`].
    pub fn get_rows(&mut self, table: TensorId, indices: TensorId) -> TensorId {
        self.node(Op::GetRows, &[table, indices])
    }

    /// [`Op::SetRows`].
    pub fn set_rows(&mut self, destination: TensorId, rows: TensorId, indices: TensorId) -> TensorId {
        self.node(Op::SetRows, &[destination, rows, indices])
    }
}
