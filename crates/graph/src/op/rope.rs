//! Rotary position embedding ([RoFormer](https://arxiv.org/abs/2104.09864)), with
//! [YaRN](https://arxiv.org/abs/2309.00071) for longer contexts.

use super::checks::{dtype, extents_of, floats};
use super::info::Arity;
use super::movement::same;
use super::sample::one_of;
use crate::OpError::Parameter;
use crate::{DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// Which elements of a head a rotation pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum RopeMode {
    /// Neighbours.
    Normal,
    /// Elements half the rotated part apart.
    Neox,
    /// As [`RopeMode::Neox`], the pairs divided among four position streams by these section sizes;
    /// positions hold the streams one after the other.
    Sections([u32; 4]),
}

/// Parameters of [`Op::Rope`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Rope {
    /// Which elements are paired.
    pub mode: RopeMode,
    /// Rotated elements of each head; the rest is passed through.
    pub dims: u32,
    /// Base of the frequencies.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub freq_base: f32,
    /// Factor of the positions (linear scaling).
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub freq_scale: f32,
    /// YaRN: weight of the extrapolated part, 0 for none.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub ext_factor: f32,
    /// Factor of the magnitudes.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub attn_factor: f32,
    /// YaRN: rotations above which a frequency is extrapolated.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub beta_fast: f32,
    /// YaRN: rotations below which a frequency is interpolated.
    #[cfg_attr(feature = "serde", serde(with = "crate::float"))]
    pub beta_slow: f32,
    /// YaRN: context length of training.
    pub original_context: u32,
}

impl Default for Rope {
    /// Plain rotation of 128 dimensions with base 10,000.
    fn default() -> Rope {
        Rope {
            mode: RopeMode::Normal,
            dims: 128,
            freq_base: 10_000.0,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context: 0,
        }
    }
}

pub(super) const ROPE: OpInfo = OpInfo {
    name: "rope",
    operands: Arity { min: 2, max: 3, text: "2 or 3" },
    overwrites: &[0],
    sample: |source| {
        let sections = RopeMode::Sections(std::array::from_fn(|_| source.small()));
        Op::Rope(Rope {
            mode: one_of(source, &[RopeMode::Normal, RopeMode::Neox, sections]),
            dims: source.small(),
            freq_base: source.float(),
            freq_scale: source.float(),
            ext_factor: source.float(),
            attn_factor: source.float(),
            beta_fast: source.float(),
            beta_slow: source.float(),
            original_context: source.small(),
        })
    },
    ..OpInfo::of_family("rope")
};

pub(super) fn rope(x: &[TensorDesc], params: &Rope) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    dtype(x, 1, x[1].dtype == DType::I32, "i32")?;
    let dims = u64::from(params.dims);
    if dims == 0 || dims % 2 != 0 || dims > x[0].extents[0] {
        return Err(Parameter { name: "dims", rule: "must be even and at most the row length" });
    }
    let streams = match params.mode {
        RopeMode::Sections([0, 0, 0, 0]) => {
            return Err(Parameter { name: "mode", rule: "sections must not all be 0" });
        }
        RopeMode::Sections(_) => 4,
        RopeMode::Normal | RopeMode::Neox => 1,
    };
    if x[0].extents[2].checked_mul(streams) != Some(x[1].elements()) {
        return Err(extents_of(x, 1, "must be one position a token (and stream)"));
    }
    if let Some(factors) = x.get(2) {
        dtype(x, 2, factors.dtype == DType::F32, "f32")?;
        if factors.elements() < dims / 2 {
            return Err(extents_of(x, 2, "must be one factor a pair"));
        }
    }
    same(x)
}

/// Position embedding.
impl GraphBuilder {
    /// [`Op::Rope`] with optional frequency factors.
    pub fn rope(
        &mut self,
        x: TensorId,
        positions: TensorId,
        factors: Option<TensorId>,
        rope: Rope,
    ) -> TensorId {
        let operands: Vec<TensorId> = [Some(x), Some(positions), factors].into_iter().flatten().collect();
        self.node(Op::Rope(rope), &operands)
    }
}
