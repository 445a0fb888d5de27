//! Ops that copy, convert and rearrange elements.

use super::checks::{contiguous, dtype, extents_of, floats, no_blocks, repeats, too_large};
use super::info::Arity;
use super::sample::SampleSource;
use crate::OpError::{OutsideStorage, Parameter};
use crate::{DIMS, DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// Where a patch lies in its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Patch {
    /// Byte strides of the patched region in dimensions 1, 2 and 3.
    pub strides: [u64; 3],
    /// Bytes from the base's first element.
    pub offset: u64,
}

const ANY: OpInfo = OpInfo::of_family("movement");

pub(super) const DUP: OpInfo = OpInfo { name: "dup", overwrites: &[0], sample: |_| Op::Dup, ..ANY };

pub(super) const CONT: OpInfo = OpInfo { name: "cont", overwrites: &[0], sample: |_| Op::Cont, ..ANY };

pub(super) fn same(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    Ok(TensorDesc::contiguous(x[0].dtype, &x[0].extents)?)
}

pub(super) const CAST: OpInfo =
    OpInfo { name: "cast", sample: |source| Op::Cast { dtype: source.dtype() }, ..ANY };

pub(super) fn cast(x: &[TensorDesc], dtype: DType) -> Result<TensorDesc, OpError> {
    Ok(TensorDesc::contiguous(dtype, &x[0].extents)?)
}

pub(super) const COPY: OpInfo =
    OpInfo { name: "copy", operands: Arity::exactly(2), storage: Some(1), sample: |_| Op::Copy, ..ANY };

pub(super) fn copy(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    if x[0].elements() != x[1].elements() {
        return Err(extents_of(x, 0, "must have as many elements as the destination"));
    }
    Ok(x[1])
}

const PATCHED: OpInfo = OpInfo { operands: Arity::exactly(2), overwrites: &[0], ..ANY };

pub(super) const SET: OpInfo =
    OpInfo { name: "set", sample: |source| Op::Set(sample_patch(source)), ..PATCHED };

pub(super) const ACC: OpInfo =
    OpInfo { name: "acc", sample: |source| Op::Acc(sample_patch(source)), ..PATCHED };

fn sample_patch(source: &mut dyn SampleSource) -> Patch {
    Patch { strides: std::array::from_fn(|_| source.extent()), offset: source.extent() }
}

pub(super) fn set(x: &[TensorDesc], patch: &Patch) -> Result<TensorDesc, OpError> {
    contiguous(x, 0)?;
    patched(x, patch)
}

pub(super) fn acc(x: &[TensorDesc], patch: &Patch) -> Result<TensorDesc, OpError> {
    contiguous(x, 0)?;
    floats(x, 0)?;
    patched(x, patch)
}

fn patched(x: &[TensorDesc], patch: &Patch) -> Result<TensorDesc, OpError> {
    dtype(x, 1, x[1].dtype == x[0].dtype, "the base's type")?;
    let [s1, s2, s3] = patch.strides;
    let strides = [x[0].dtype.block_bytes(), s1, s2, s3];
    let region = TensorDesc::strided(x[0].dtype, x[1].extents, strides)?;
    if x[1].elements() > x[0].elements() {
        return Err(extents_of(x, 1, "must not have more elements than the base"));
    }
    let end = patch.offset.saturating_add(region.bytes());
    if end > x[0].bytes() {
        return Err(OutsideStorage { end, bytes: x[0].bytes() });
    }
    same(x)
}

pub(super) const REPEAT: OpInfo =
    OpInfo { name: "repeat", sample: |source| Op::Repeat { extents: source.extents() }, ..ANY };

pub(super) fn repeat(x: &[TensorDesc], extents: &[u64; DIMS]) -> Result<TensorDesc, OpError> {
    if !repeats(&x[0].extents, extents) {
        return Err(extents_of(x, 0, "must divide the result's"));
    }
    Ok(TensorDesc::contiguous(x[0].dtype, extents)?)
}

pub(super) const CONCAT: OpInfo = OpInfo {
    name: "concat",
    operands: Arity { min: 1, max: usize::MAX, text: "at least 1" },
    sample: |source| Op::Concat { axis: source.below(DIMS + 1) as u8 },
    ..ANY
};

pub(super) fn concat(x: &[TensorDesc], axis: u8) -> Result<TensorDesc, OpError> {
    let first = &x[0];
    let axis = usize::from(axis);
    if axis >= DIMS {
        return Err(Parameter { name: "axis", rule: "must be below 4" });
    }
    let mut extents = first.extents;
    for (slot, other) in x.iter().enumerate().skip(1) {
        dtype(x, slot, other.dtype == first.dtype, "the first operand's type")?;
        if (0..DIMS).any(|dim| dim != axis && other.extents[dim] != first.extents[dim]) {
            return Err(extents_of(x, slot, "must be the first operand's but along the axis"));
        }
        extents[axis] =
            extents[axis].checked_add(other.extents[axis]).ok_or(too_large(first.dtype, extents))?;
    }
    Ok(TensorDesc::contiguous(first.dtype, &extents)?)
}

pub(super) const PAD: OpInfo = OpInfo {
    name: "pad",
    sample: |source| Op::Pad { before: source.extents(), after: source.extents() },
    ..ANY
};

pub(super) fn pad(
    x: &[TensorDesc],
    before: &[u64; DIMS],
    after: &[u64; DIMS],
) -> Result<TensorDesc, OpError> {
    no_blocks(x, 0)?;
    let mut extents = x[0].extents;
    for dim in 0..DIMS {
        extents[dim] = extents[dim]
            .checked_add(before[dim])
            .and_then(|sum| sum.checked_add(after[dim]))
            .ok_or(too_large(x[0].dtype, extents))?;
    }
    Ok(TensorDesc::contiguous(x[0].dtype, &extents)?)
}

pub(super) const ROLL: OpInfo = OpInfo {
    name: "roll",
    sample: |source| Op::Roll { shifts: source.extents().map(|shift| shift as i64) },
    ..ANY
};

pub(super) fn roll(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    no_blocks(x, 0)?;
    same(x)
}

pub(super) const ARANGE: OpInfo = OpInfo {
    name: "arange",
    operands: Arity::exactly(0),
    sample: |source| Op::Arange { start: source.float(), stop: source.float(), step: source.float() },
    ..ANY
};

pub(super) fn arange(start: f32, stop: f32, step: f32) -> Result<TensorDesc, OpError> {
    // In f32 like the values: 0 to 0.3 by 0.1 is three steps, which f64 would count as four.
    let steps = ((stop - start) / step).ceil();
    if !(0.0..9.0e15).contains(&steps) {
        return Err(Parameter { name: "step", rule: "must lead from start to stop" });
    }
    Ok(TensorDesc::contiguous(DType::F32, &[steps as u64])?)
}

/// Movement.
impl GraphBuilder {
    /// [`Op::Dup`].
    pub fn dup(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Dup, &[x])
    }

    /// [`Op::Cast`].
    pub fn cast(&mut self, x: TensorId, dtype: DType) -> TensorId {
        self.node(Op::Cast { dtype }, &[x])
    }

    /// [`Op::Copy`].
    pub fn copy(&mut self, source: TensorId, destination: TensorId) -> TensorId {
        self.node(Op::Copy, &[source, destination])
    }

    /// [`Op::Cont`].
    pub fn cont(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Cont, &[x])
    }

    /// [`Op::Set`].
    pub fn set(&mut self, base: TensorId, patch: TensorId, at: Patch) -> TensorId {
        self.node(Op::Set(at), &[base, patch])
    }

    /// [`Op::Acc`].
    pub fn acc(&mut self, base: TensorId, patch: TensorId, at: Patch) -> TensorId {
        self.node(Op::Acc(at), &[base, patch])
    }

    /// [`Op::Repeat`].
    pub fn repeat(&mut self, x: TensorId, extents: [u64; DIMS]) -> TensorId {
        self.node(Op::Repeat { extents }, &[x])
    }

    /// [`Op::Concat`].
    pub fn concat(&mut self, parts: &[TensorId], axis: u8) -> TensorId {
        self.node(Op::Concat { axis }, parts)
    }

    /// [`Op::Pad`].
    pub fn pad(&mut self, x: TensorId, before: [u64; DIMS], after: [u64; DIMS]) -> TensorId {
        self.node(Op::Pad { before, after }, &[x])
    }

    /// [`Op::Roll`].
    pub fn roll(&mut self, x: TensorId, shifts: [i64; DIMS]) -> TensorId {
        self.node(Op::Roll { shifts }, &[x])
    }

    /// [`Op::Arange`].
    pub fn arange(&mut self, start: f32, stop: f32, step: f32) -> TensorId {
        self.node(Op::Arange { start, stop, step }, &[])
    }
}
