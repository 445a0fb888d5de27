//! Indices of elements by size.

use super::checks::{extents_of, floats, indexable};
use super::sample::one_of;
use crate::OpError::Parameter;
use crate::{DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// Order of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[allow(missing_docs)] // the names say it
pub enum SortDirection {
    Ascending,
    Descending,
}

const ANY: OpInfo = OpInfo::of_family("sort");

pub(super) const ARGMAX: OpInfo = OpInfo { name: "argmax", sample: |_| Op::ArgMax, ..ANY };

pub(super) fn argmax(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    indexable(x, 0)?;
    let [n, a, b, c] = x[0].extents;
    if n == 0 && x[0].rows() != 0 {
        return Err(extents_of(x, 0, "rows must not be empty"));
    }
    Ok(TensorDesc::contiguous(DType::I32, &[a, b, c])?)
}

pub(super) const ARGSORT: OpInfo = OpInfo {
    name: "argsort",
    sample: |source| {
        let direction = one_of(source, &[SortDirection::Ascending, SortDirection::Descending]);
        Op::ArgSort { direction }
    },
    ..ANY
};

pub(super) fn argsort(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    indexable(x, 0)?;
    Ok(TensorDesc::contiguous(DType::I32, &x[0].extents)?)
}

pub(super) const TOP_K: OpInfo =
    OpInfo { name: "top_k", sample: |source| Op::TopK { k: source.extent() }, ..ANY };

pub(super) fn top_k(x: &[TensorDesc], k: u64) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    indexable(x, 0)?;
    let [n, a, b, c] = x[0].extents;
    if k > n {
        return Err(Parameter { name: "k", rule: "must not exceed the row length" });
    }
    Ok(TensorDesc::contiguous(DType::I32, &[k, a, b, c])?)
}

/// Indices by size.
impl GraphBuilder {
    /// [`Op::ArgMax`].
    pub fn argmax(&mut self, x: TensorId) -> TensorId {
        self.node(Op::ArgMax, &[x])
    }

    /// [`Op::ArgSort`].
    pub fn argsort(&mut self, x: TensorId, direction: SortDirection) -> TensorId {
        self.node(Op::ArgSort { direction }, &[x])
    }

    /// [`Op::TopK`].
    pub fn top_k(&mut self, x: TensorId, k: u64) -> TensorId {
        self.node(Op::TopK { k }, &[x])
    }
}
