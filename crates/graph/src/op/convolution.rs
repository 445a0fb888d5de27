//! Convolutions of one and two dimensions.

use super::checks::{extents_of, floats, left_hand, product, spread, windows};
use super::info::{Arity, Cost, CostOf};
use super::sample::SampleSource;
use crate::OpError::Parameter;
use crate::{DType, GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// How a convolution's kernel moves; one-dimensional ops use the first entry of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Window {
    /// Distance between positions.
    pub stride: [u32; 2],
    /// Zeros on both sides.
    pub padding: [u32; 2],
    /// Distance between kernel elements.
    pub dilation: [u32; 2],
}

impl Default for Window {
    /// Stride 1, no padding, no dilation.
    fn default() -> Window {
        Window { stride: [1; 2], padding: [0; 2], dilation: [1; 2] }
    }
}

const ANY: OpInfo = OpInfo { operands: Arity::exactly(2), ..OpInfo::of_family("convolution") };

fn sample_window(source: &mut dyn SampleSource) -> Window {
    Window { stride: source.pair(), padding: source.pair(), dilation: source.pair() }
}

pub(super) const IM2COL: OpInfo = OpInfo {
    name: "im2col",
    sample: |source| Op::Im2Col {
        window: sample_window(source),
        two_d: source.flag(),
        dtype: source.dtype(),
    },
    ..ANY
};

pub(super) fn im2col(
    x: &[TensorDesc],
    window: &Window,
    two_d: bool,
    result: DType,
) -> Result<TensorDesc, OpError> {
    floats(x, 1)?;
    if !result.is_float() {
        return Err(Parameter { name: "dtype", rule: "must be a floating-point type" });
    }
    let (kernel, data) = (x[0].extents, x[1].extents);
    if two_d {
        if kernel[2] != data[2] {
            return Err(extents_of(x, 1, "must have the kernel's channels"));
        }
        let w = windows(data[0], kernel[0], window, 0)?;
        let h = windows(data[1], kernel[1], window, 1)?;
        let row = product(&[kernel[0], kernel[1], kernel[2]], result)?;
        Ok(TensorDesc::contiguous(result, &[row, w, h, data[3]])?)
    } else {
        if kernel[1] != data[1] || data[3] != 1 {
            return Err(extents_of(x, 1, "must have the kernel's channels, three dimensions"));
        }
        let w = windows(data[0], kernel[0], window, 0)?;
        let row = product(&[kernel[0], kernel[1]], result)?;
        Ok(TensorDesc::contiguous(result, &[row, w, data[2]])?)
    }
}

pub(super) const CONV_1D: OpInfo = OpInfo {
    name: "conv_1d",
    cost: Cost::multiply_add(&[(0, 0), (0, 1)]),
    sample: |source| Op::Conv1d(sample_window(source)),
    ..ANY
};

pub(super) fn conv_1d(x: &[TensorDesc], window: &Window) -> Result<TensorDesc, OpError> {
    left_hand(x, 0)?;
    floats(x, 1)?;
    let ([k, input, output, one], [length, channels, batch, last]) = (x[0].extents, x[1].extents);
    if one != 1 || last != 1 || channels != input {
        return Err(extents_of(x, 1, "must have the kernel's input channels"));
    }
    Ok(TensorDesc::contiguous(DType::F32, &[windows(length, k, window, 0)?, output, batch])?)
}

pub(super) const CONV_2D: OpInfo = OpInfo {
    name: "conv_2d",
    cost: Cost::multiply_add(&[(0, 0), (0, 1), (0, 2)]),
    sample: |source| Op::Conv2d(sample_window(source)),
    ..ANY
};

pub(super) fn conv_2d(x: &[TensorDesc], window: &Window) -> Result<TensorDesc, OpError> {
    left_hand(x, 0)?;
    floats(x, 1)?;
    let ([kw, kh, input, output], [w, h, channels, batch]) = (x[0].extents, x[1].extents);
    if channels != input {
        return Err(extents_of(x, 1, "must have the kernel's input channels"));
    }
    let (w, h) = (windows(w, kw, window, 0)?, windows(h, kh, window, 1)?);
    Ok(TensorDesc::contiguous(DType::F32, &[w, h, output, batch])?)
}

pub(super) const CONV_DEPTHWISE_2D: OpInfo = OpInfo {
    name: "conv_depthwise_2d",
    cost: Cost::multiply_add(&[(0, 0), (0, 1)]),
    sample: |source| Op::ConvDepthwise2d(sample_window(source)),
    ..ANY
};

pub(super) fn conv_depthwise_2d(x: &[TensorDesc], window: &Window) -> Result<TensorDesc, OpError> {
    left_hand(x, 0)?;
    floats(x, 1)?;
    let ([kw, kh, one, kernels], [w, h, channels, batch]) = (x[0].extents, x[1].extents);
    if one != 1 || channels != kernels {
        return Err(extents_of(x, 1, "must have one channel a kernel"));
    }
    let (w, h) = (windows(w, kw, window, 0)?, windows(h, kh, window, 1)?);
    Ok(TensorDesc::contiguous(DType::F32, &[w, h, channels, batch])?)
}

pub(super) const CONV_TRANSPOSE_1D: OpInfo = OpInfo {
    name: "conv_transpose_1d",
    // Each element of the data is multiplied with its channel's kernels.
    cost_of: CostOf::Operand(1),
    cost: Cost::multiply_add(&[(0, 0), (0, 1)]),
    sample: |source| Op::ConvTranspose1d { stride: source.small() },
    ..ANY
};

pub(super) fn conv_transpose_1d(x: &[TensorDesc], stride: u32) -> Result<TensorDesc, OpError> {
    left_hand(x, 0)?;
    floats(x, 1)?;
    let ([k, output, input, one], [length, channels, d2, d3]) = (x[0].extents, x[1].extents);
    if one != 1 || channels != input || d2 != 1 || d3 != 1 {
        return Err(extents_of(x, 1, "must have the kernel's input channels"));
    }
    Ok(TensorDesc::contiguous(DType::F32, &[spread(length, k, stride)?, output])?)
}

pub(super) const CONV_TRANSPOSE_2D: OpInfo = OpInfo {
    name: "conv_transpose_2d",
    cost_of: CostOf::Operand(1),
    cost: Cost::multiply_add(&[(0, 0), (0, 1), (0, 2)]),
    sample: |source| Op::ConvTranspose2d { stride: source.small() },
    ..ANY
};

pub(super) fn conv_transpose_2d(x: &[TensorDesc], stride: u32) -> Result<TensorDesc, OpError> {
    left_hand(x, 0)?;
    floats(x, 1)?;
    let ([kw, kh, output, input], [w, h, channels, batch]) = (x[0].extents, x[1].extents);
    if channels != input {
        return Err(extents_of(x, 1, "must have the kernel's input channels"));
    }
    let (w, h) = (spread(w, kw, stride)?, spread(h, kh, stride)?);
    Ok(TensorDesc::contiguous(DType::F32, &[w, h, output, batch])?)
}

/// Convolutions.
impl GraphBuilder {
    /// [`Op::Im2Col`].
    pub fn im2col(
        &mut self,
        kernel: TensorId,
        data: TensorId,
        window: Window,
        two_d: bool,
        dtype: DType,
    ) -> TensorId {
        self.node(Op::Im2Col { window, two_d, dtype }, &[kernel, data])
    }

    /// [`Op::Conv1d`].
    pub fn conv_1d(&mut self, kernel: TensorId, data: TensorId, window: Window) -> TensorId {
        self.node(Op::Conv1d(window), &[kernel, data])
    }

    /// [`Op::Conv2d`].
    pub fn conv_2d(&mut self, kernel: TensorId, data: TensorId, window: Window) -> TensorId {
        self.node(Op::Conv2d(window), &[kernel, data])
    }

    /// [`Op::ConvDepthwise2d`].
    pub fn conv_depthwise_2d(&mut self, kernel: TensorId, data: TensorId, window: Window) -> TensorId {
        self.node(Op::ConvDepthwise2d(window), &[kernel, data])
    }

    /// [`Op::ConvTranspose1d`].
    pub fn conv_transpose_1d(&mut self, kernel: TensorId, data: TensorId, stride: u32) -> TensorId {
        self.node(Op::ConvTranspose1d { stride }, &[kernel, data])
    }

    /// [`Op::ConvTranspose2d`].
    pub fn conv_transpose_2d(&mut self, kernel: TensorId, data: TensorId, stride: u32) -> TensorId {
        self.node(Op::ConvTranspose2d { stride }, &[kernel, data])
    }
}
