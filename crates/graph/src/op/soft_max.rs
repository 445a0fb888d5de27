//! Softmax, and masks of what lies above a diagonal.

use super::checks::{count, divides, dtype, extents_of, floats, sinks, slopes_have_a_mask};
use super::info::Arity;
use super::movement::same;
use crate::{DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// Parameters of [`Op::SoftMax`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SoftMax {
    /// Factor of the operand.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub scale: f32,
    /// [ALiBi](https://arxiv.org/abs/2108.12409): 0, or the bias from which the heads' slopes follow; needs a
    /// mask.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub max_bias: f32,
    /// A mask (F16 or F32) is the next operand.
    pub mask: bool,
    /// Sinks (F32, one per head) are the last operand.
    pub sinks: bool,
}

impl SoftMax {
    /// How many operands it takes.
    pub fn operands(&self) -> usize {
        1 + usize::from(self.mask) + usize::from(self.sinks)
    }
}

const ANY: OpInfo = OpInfo { overwrites: &[0], ..OpInfo::of_family("soft_max") };

pub(super) const SOFT_MAX: OpInfo = OpInfo {
    name: "soft_max",
    operands: Arity::by_parameters(1, 3),
    sample: |source| {
        Op::SoftMax(SoftMax {
            scale: source.float(),
            max_bias: source.float(),
            mask: source.flag(),
            sinks: source.flag(),
        })
    },
    ..ANY
};

pub(super) fn soft_max(x: &[TensorDesc], params: &SoftMax) -> Result<TensorDesc, OpError> {
    count(x, params.operands(), SOFT_MAX.operands)?;
    floats(x, 0)?;
    slopes_have_a_mask(params.max_bias, params.mask)?;
    let [n, rows, heads, outer] = x[0].extents;
    if params.mask {
        dtype(x, 1, matches!(x[1].dtype, DType::F16 | DType::F32), "f16 or f32")?;
        let mask = x[1].extents;
        if mask[0] != n || mask[1] < rows || !divides(mask[2], heads) || !divides(mask[3], outer) {
            return Err(extents_of(x, 1, "a mask must cover the rows and divide outer extents"));
        }
    }
    if params.sinks {
        sinks(x, 1 + usize::from(params.mask), heads)?;
    }
    same(x)
}

pub(super) const DIAG_MASK_INF: OpInfo =
    OpInfo { name: "diag_mask_inf", sample: |source| Op::DiagMaskInf { past: source.small() }, ..ANY };

pub(super) const DIAG_MASK_ZERO: OpInfo =
    OpInfo { name: "diag_mask_zero", sample: |source| Op::DiagMaskZero { past: source.small() }, ..ANY };

/// Softmax and masks.
impl GraphBuilder {
    /// [`Op::SoftMax`] with an optional mask.
    pub fn soft_max(&mut self, x: TensorId, mask: Option<TensorId>, scale: f32, max_bias: f32) -> TensorId {
        let params = SoftMax { scale, max_bias, mask: mask.is_some(), sinks: false };
        let operands: Vec<TensorId> = [Some(x), mask].into_iter().flatten().collect();
        self.node(Op::SoftMax(params), &operands)
    }

    /// [`Op::DiagMaskInf`].
    pub fn diag_mask_inf(&mut self, x: TensorId, past: u32) -> TensorId {
        self.node(Op::DiagMaskInf { past }, &[x])
    }

    /// [`Op::DiagMaskZero`].
    pub fn diag_mask_zero(&mut self, x: TensorId, past: u32) -> TensorId {
        self.node(Op::DiagMaskZero { past }, &[x])
    }
}
