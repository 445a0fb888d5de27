//! What image models need beside convolutions: pooling, upscaling, and the embedding of diffusion timesteps.

use super::checks::{extents_of, floats, pooled};
use super::sample::{SampleSource, one_of};
use crate::OpError::Parameter;
use crate::{DIMS, DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// Parameters of pooling; one-dimensional pooling uses the first entry of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Pool {
    /// Maximum or mean.
    pub kind: PoolKind,
    /// Window size.
    pub kernel: [u32; 2],
    /// Distance between windows.
    pub stride: [u32; 2],
    /// Elements outside on both sides; they do not count.
    pub padding: [u32; 2],
}

/// What a pooling window yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum PoolKind {
    /// The largest element.
    Max,
    /// The sum of the elements divided by the window's size.
    Mean,
}

/// How upscaling finds values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Interpolation {
    /// The element at that place.
    Nearest,
    /// Between the four around it.
    Bilinear,
}

const ANY: OpInfo = OpInfo::of_family("image");

fn sample_pool(source: &mut dyn SampleSource) -> Pool {
    let kind = one_of(source, &[PoolKind::Max, PoolKind::Mean]);
    Pool { kind, kernel: source.pair(), stride: source.pair(), padding: source.pair() }
}

pub(super) const POOL_1D: OpInfo =
    OpInfo { name: "pool_1d", sample: |source| Op::Pool1d(sample_pool(source)), ..ANY };

pub(super) fn pool_1d(x: &[TensorDesc], pool: &Pool) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    let [n, a, b, c] = x[0].extents;
    Ok(TensorDesc::contiguous(DType::F32, &[pooled(n, pool, 0)?, a, b, c])?)
}

pub(super) const POOL_2D: OpInfo =
    OpInfo { name: "pool_2d", sample: |source| Op::Pool2d(sample_pool(source)), ..ANY };

pub(super) fn pool_2d(x: &[TensorDesc], pool: &Pool) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    let [w, h, b, c] = x[0].extents;
    Ok(TensorDesc::contiguous(DType::F32, &[pooled(w, pool, 0)?, pooled(h, pool, 1)?, b, c])?)
}

pub(super) const UPSCALE: OpInfo = OpInfo {
    name: "upscale",
    sample: |source| {
        let mode = one_of(source, &[Interpolation::Nearest, Interpolation::Bilinear]);
        Op::Upscale { extents: source.extents(), mode }
    },
    ..ANY
};

pub(super) fn upscale(x: &[TensorDesc], extents: &[u64; DIMS]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    if x[0].is_empty() && !extents.contains(&0) {
        return Err(extents_of(x, 0, "an empty operand has no values to scale up"));
    }
    Ok(TensorDesc::contiguous(x[0].dtype, extents)?)
}

pub(super) const TIMESTEP_EMBEDDING: OpInfo = OpInfo {
    name: "timestep_embedding",
    sample: |source| Op::TimestepEmbedding { dim: source.small(), max_period: source.small() },
    ..ANY
};

pub(super) fn timestep_embedding(x: &[TensorDesc], dim: u32, max_period: u32) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    if dim == 0 {
        return Err(Parameter { name: "dim", rule: "must not be 0" });
    }
    if max_period == 0 {
        return Err(Parameter { name: "max_period", rule: "must not be 0" });
    }
    if x[0].rows() != 1 {
        return Err(extents_of(x, 0, "must be one row"));
    }
    Ok(TensorDesc::contiguous(DType::F32, &[u64::from(dim), x[0].extents[0]])?)
}

/// Images.
impl GraphBuilder {
    /// [`Op::Pool1d`].
    pub fn pool_1d(&mut self, x: TensorId, pool: Pool) -> TensorId {
        self.node(Op::Pool1d(pool), &[x])
    }

    /// [`Op::Pool2d`].
    pub fn pool_2d(&mut self, x: TensorId, pool: Pool) -> TensorId {
        self.node(Op::Pool2d(pool), &[x])
    }

    /// [`Op::Upscale`].
    pub fn upscale(&mut self, x: TensorId, extents: [u64; DIMS], mode: Interpolation) -> TensorId {
        self.node(Op::Upscale { extents, mode }, &[x])
    }

    /// [`Op::TimestepEmbedding`].
    pub fn timestep_embedding(&mut self, timesteps: TensorId, dim: u32, max_period: u32) -> TensorId {
        self.node(Op::TimestepEmbedding { dim, max_period }, &[timesteps])
    }
}
