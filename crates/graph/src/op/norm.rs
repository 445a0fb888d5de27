//! Normalization of rows and of groups of channels.

use super::checks::floats;
use super::movement::same;
use crate::OpError::Parameter;
use crate::{GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

const ANY: OpInfo = OpInfo { overwrites: &[0], ..OpInfo::of_family("norm") };

pub(super) const NORM: OpInfo =
    OpInfo { name: "norm", sample: |source| Op::Norm { eps: source.float() }, ..ANY };

pub(super) const RMS_NORM: OpInfo =
    OpInfo { name: "rms_norm", sample: |source| Op::RmsNorm { eps: source.float() }, ..ANY };

pub(super) const L2_NORM: OpInfo =
    OpInfo { name: "l2_norm", sample: |source| Op::L2Norm { eps: source.float() }, ..ANY };

pub(super) const GROUP_NORM: OpInfo = OpInfo {
    name: "group_norm",
    sample: |source| Op::GroupNorm { groups: source.small(), eps: source.float() },
    ..ANY
};

pub(super) fn group_norm(x: &[TensorDesc], groups: u32) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    if groups == 0 || u64::from(groups) > x[0].extents[2].max(1) {
        return Err(Parameter { name: "groups", rule: "must be from 1 to the number of channels" });
    }
    same(x)
}

/// Normalization.
impl GraphBuilder {
    /// [`Op::Norm`].
    pub fn norm(&mut self, x: TensorId, eps: f32) -> TensorId {
        self.node(Op::Norm { eps }, &[x])
    }

    /// [`Op::RmsNorm`].
    pub fn rms_norm(&mut self, x: TensorId, eps: f32) -> TensorId {
        self.node(Op::RmsNorm { eps }, &[x])
    }

    /// [`Op::GroupNorm`].
    pub fn group_norm(&mut self, x: TensorId, groups: u32, eps: f32) -> TensorId {
        self.node(Op::GroupNorm { groups, eps }, &[x])
    }

    /// [`Op::L2Norm`].
    pub fn l2_norm(&mut self, x: TensorId, eps: f32) -> TensorId {
        self.node(Op::L2Norm { eps }, &[x])
    }
}
