//! Views: an operand's storage read with other extents and strides. They compute nothing.

use super::checks::{contiguous, extents_of, few_enough, padded, permuted};
use super::sample::one_of;
use crate::OpError::{OutsideStorage, Parameter};
use crate::{DIMS, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

const ANY: OpInfo = OpInfo { view: true, storage: Some(0), ..OpInfo::of_family("views") };

pub(super) const VIEW: OpInfo = OpInfo {
    name: "view",
    sample: |source| {
        let strides = if source.flag() { source.extents() } else { [4, 16, 64, 256] };
        Op::View { extents: source.extents(), strides, offset: source.extent() }
    },
    ..ANY
};

pub(super) fn view(
    x: &[TensorDesc],
    extents: [u64; DIMS],
    strides: [u64; DIMS],
    offset: u64,
) -> Result<TensorDesc, OpError> {
    let desc = TensorDesc::strided(x[0].dtype, extents, strides)?;
    let end = offset.saturating_add(desc.bytes());
    if end > x[0].bytes() {
        return Err(OutsideStorage { end, bytes: x[0].bytes() });
    }
    Ok(desc)
}

pub(super) const RESHAPE: OpInfo =
    OpInfo { name: "reshape", sample: |source| Op::Reshape { extents: source.extents() }, ..ANY };

pub(super) fn reshape(x: &[TensorDesc], extents: &[u64; DIMS]) -> Result<TensorDesc, OpError> {
    contiguous(x, 0)?;
    let desc = TensorDesc::contiguous(x[0].dtype, extents)?;
    if desc.elements() != x[0].elements() {
        return Err(extents_of(x, 0, "a reshape keeps the number of elements"));
    }
    Ok(desc)
}

pub(super) const PERMUTE: OpInfo = OpInfo {
    name: "permute",
    sample: |source| Op::Permute {
        axes: one_of(source, &[[0, 2, 1, 3], [3, 1, 0, 2], [1, 0, 2, 3], [9; 4]]),
    },
    ..ANY
};

pub(super) fn permute(x: &[TensorDesc], axes: &[u8; DIMS]) -> Result<TensorDesc, OpError> {
    let mut seen = [false; DIMS];
    for axis in axes {
        match seen.get_mut(usize::from(*axis)) {
            Some(seen @ false) => *seen = true,
            _ => return Err(Parameter { name: "axes", rule: "must be a permutation of 0..4" }),
        }
    }
    permuted(&x[0], axes.map(usize::from))
}

pub(super) const TRANSPOSE: OpInfo = OpInfo { name: "transpose", sample: |_| Op::Transpose, ..ANY };

pub(super) fn transpose(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    permuted(&x[0], [1, 0, 2, 3])
}

/// Views.
impl GraphBuilder {
    /// [`Op::View`].
    pub fn view(&mut self, x: TensorId, extents: [u64; DIMS], strides: [u64; DIMS], offset: u64) -> TensorId {
        self.node(Op::View { extents, strides, offset }, &[x])
    }

    /// [`Op::Reshape`]; extents that are left out are 1.
    pub fn reshape(&mut self, x: TensorId, extents: &[u64]) -> TensorId {
        self.checked_node(Op::Reshape { extents: padded(extents) }, &[x], few_enough(extents))
    }

    /// [`Op::Permute`].
    pub fn permute(&mut self, x: TensorId, axes: [u8; DIMS]) -> TensorId {
        self.node(Op::Permute { axes }, &[x])
    }

    /// [`Op::Transpose`].
    pub fn transpose(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Transpose, &[x])
    }
}
