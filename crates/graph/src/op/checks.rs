//! Checks that the shape rules of several ops share.

use super::info::Arity;
use crate::OpError::{Extents, NotContiguous, Operands, Parameter};
use crate::{DIMS, DType, DescError, OpError, Pool, TensorDesc, Window};

/// That there are as many operands as the parameters say.
pub(super) fn count(x: &[TensorDesc], wanted: usize, arity: Arity) -> Result<(), OpError> {
    if x.len() == wanted { Ok(()) } else { Err(Operands { expected: arity.text, given: x.len() }) }
}

pub(super) fn dtype(
    x: &[TensorDesc],
    operand: usize,
    fits: bool,
    expected: &'static str,
) -> Result<(), OpError> {
    if fits { Ok(()) } else { Err(OpError::DType { operand, dtype: x[operand].dtype, expected }) }
}

pub(super) fn floats(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    dtype(x, operand, x[operand].dtype.is_float(), "a floating-point type")
}

pub(super) fn no_blocks(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    dtype(x, operand, !x[operand].dtype.is_quantized(), "a type without blocks")
}

pub(super) fn left_hand(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    dtype(x, operand, !x[operand].dtype.is_integer(), "a floating-point or quantized type")
}

pub(super) fn right_hand(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    let fits = matches!(x[operand].dtype, DType::F32 | DType::F16 | DType::BF16);
    dtype(x, operand, fits, "f32, f16 or bf16")
}

pub(super) fn sinks(x: &[TensorDesc], operand: usize, heads: u64) -> Result<(), OpError> {
    dtype(x, operand, x[operand].dtype == DType::F32, "f32")?;
    if x[operand].elements() == heads {
        Ok(())
    } else {
        Err(extents_of(x, operand, "must be one sink a head"))
    }
}

/// ALiBi's slopes multiply a mask.
pub(super) fn slopes_have_a_mask(max_bias: f32, mask: bool) -> Result<(), OpError> {
    if max_bias > 0.0 && !mask {
        return Err(Parameter { name: "max_bias", rule: "needs a mask" });
    }
    Ok(())
}

/// Whether I32 can name every column.
pub(super) fn indexable(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    if i32::try_from(x[operand].extents[0]).is_ok() {
        Ok(())
    } else {
        Err(extents_of(x, operand, "rows must be short enough for i32 indices"))
    }
}

pub(super) fn contiguous(x: &[TensorDesc], operand: usize) -> Result<(), OpError> {
    if x[operand].is_contiguous() { Ok(()) } else { Err(NotContiguous { operand }) }
}

pub(super) fn extents_of(x: &[TensorDesc], operand: usize, rule: &'static str) -> OpError {
    Extents { operand, extents: x[operand].extents, rule }
}

pub(super) fn too_large(dtype: DType, extents: [u64; DIMS]) -> OpError {
    OpError::Desc(DescError::TooLarge { dtype, extents })
}

/// Whether `whole` is a multiple of `part`; 0 divides only 0.
pub(super) fn divides(part: u64, whole: u64) -> bool {
    if part == 0 { whole == 0 } else { whole.is_multiple_of(part) }
}

pub(super) fn repeats(part: &[u64; DIMS], whole: &[u64; DIMS]) -> bool {
    part.iter().zip(whole).all(|(part, whole)| divides(*part, *whole))
}

pub(super) fn permuted(x: &TensorDesc, axes: [usize; DIMS]) -> Result<TensorDesc, OpError> {
    if x.dtype.is_quantized() && axes[0] != 0 {
        return Err(OpError::DType { operand: 0, dtype: x.dtype, expected: "a type without blocks" });
    }
    let mut desc = *x;
    for (from, to) in axes.into_iter().enumerate() {
        desc.extents[to] = x.extents[from];
        desc.strides[to] = x.strides[from];
    }
    Ok(desc)
}

pub(super) fn product(extents: &[u64], dtype: DType) -> Result<u64, OpError> {
    let mut full = [1; DIMS];
    full[..extents.len()].copy_from_slice(extents);
    extents
        .iter()
        .try_fold(1u64, |product, extent| product.checked_mul(*extent))
        .ok_or(too_large(dtype, full))
}

/// Extents filled up with 1.
pub(super) fn padded(extents: &[u64]) -> [u64; DIMS] {
    let mut full = [1; DIMS];
    for (slot, extent) in full.iter_mut().zip(extents) {
        *slot = *extent;
    }
    full
}

pub(super) fn few_enough(extents: &[u64]) -> Result<(), DescError> {
    if extents.len() <= DIMS { Ok(()) } else { Err(DescError::TooManyDimensions(extents.len())) }
}

/// Number of positions of a kernel along a padded extent.
fn positions(extent: u64, kernel: u64, stride: u32, padding: u32, dilation: u32) -> Result<u64, OpError> {
    if stride == 0 || dilation == 0 || kernel == 0 {
        return Err(Parameter { name: "window", rule: "kernel, stride and dilation must not be 0" });
    }
    let reach = (kernel - 1).checked_mul(u64::from(dilation)).and_then(|reach| reach.checked_add(1));
    let room = extent.checked_add(2 * u64::from(padding));
    match (reach, room) {
        (Some(reach), Some(room)) if reach <= room => Ok((room - reach) / u64::from(stride) + 1),
        _ => Err(Parameter { name: "window", rule: "the kernel must fit the padded data" }),
    }
}

pub(super) fn windows(extent: u64, kernel: u64, window: &Window, dim: usize) -> Result<u64, OpError> {
    positions(extent, kernel, window.stride[dim], window.padding[dim], window.dilation[dim])
}

pub(super) fn pooled(extent: u64, pool: &Pool, dim: usize) -> Result<u64, OpError> {
    positions(extent, u64::from(pool.kernel[dim]), pool.stride[dim], pool.padding[dim], 1)
}

pub(super) fn spread(extent: u64, kernel: u64, stride: u32) -> Result<u64, OpError> {
    if extent == 0 || kernel == 0 || stride == 0 {
        return Err(Parameter { name: "stride", rule: "stride, kernel and data must not be 0" });
    }
    (extent - 1)
        .checked_mul(u64::from(stride))
        .and_then(|sum| sum.checked_add(kernel))
        .ok_or(Parameter { name: "stride", rule: "the result must fit 64-bit sizes" })
}
