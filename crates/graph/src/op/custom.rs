//! Ops that only their device knows.

use super::checks::{few_enough, padded};
use super::info::Arity;
use crate::{DIMS, DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// What a custom op overwrites is a parameter.
pub(super) const CUSTOM: OpInfo = OpInfo {
    name: "custom",
    functions: Some(&[]),
    operands: Arity { min: 0, max: usize::MAX, text: "any number of" },
    sample: |source| Op::Custom {
        name: "mine".to_owned(),
        dtype: source.dtype(),
        extents: source.extents(),
        overwrites: vec![source.below(3) as u8],
    },
    ..OpInfo::of_family("custom")
};

pub(super) fn custom(dtype: DType, extents: &[u64; DIMS]) -> Result<TensorDesc, OpError> {
    Ok(TensorDesc::contiguous(dtype, extents)?)
}

/// Custom ops.
impl GraphBuilder {
    /// [`Op::Custom`].
    pub fn custom(
        &mut self,
        name: &str,
        inputs: &[TensorId],
        dtype: DType,
        extents: &[u64],
        overwrites: &[u8],
    ) -> TensorId {
        let op = Op::Custom {
            name: name.to_owned(),
            dtype,
            extents: padded(extents),
            overwrites: overwrites.to_vec(),
        };
        self.checked_node(op, inputs, few_enough(extents))
    }
}
