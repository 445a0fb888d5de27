//! Convolutions, result by result.

use orlop_graph::{TensorDesc, Window};

use super::coordinates::coordinates;
use crate::Elements;
use crate::elements::extents;

/// Position in the data of a kernel element, along one dimension; `None` in the padding.
fn tap(window: &Window, dim: usize, position: usize, element: usize, extent: usize) -> Option<usize> {
    let padded = position * window.stride[dim] as usize + element * window.dilation[dim] as usize;
    padded.checked_sub(window.padding[dim] as usize).filter(|at| *at < extent)
}

pub(super) fn im2col(
    window: &Window,
    two_d: bool,
    kernel: &Elements,
    data: &Elements,
    output: &TensorDesc,
) -> Vec<f64> {
    let [kw, kh, _, _] = kernel.extents();
    let [w, h, _, _] = data.extents();
    // Each row holds the patch of every channel: kernel width innermost, then height, then channels.
    let element = |[row, x, y, batch]: [usize; 4]| {
        let kx = row % kw;
        if two_d {
            let (ky, channel) = (row / kw % kh, row / kw / kh);
            let taps = tap(window, 0, x, kx, w).zip(tap(window, 1, y, ky, h));
            taps.map_or(0.0, |(x, y)| data.at([x, y, channel, batch]))
        } else {
            // The third dimension of a one-dimensional result is the batch.
            let (channel, batch) = (row / kw, y);
            tap(window, 0, x, kx, w).map_or(0.0, |x| data.at([x, channel, batch, 0]))
        }
    };
    coordinates(extents(output)).map(element).collect()
}

pub(super) fn conv_1d(window: &Window, kernel: &Elements, data: &Elements, output: &TensorDesc) -> Vec<f64> {
    let [size, inputs, _, _] = kernel.extents();
    let element = |[x, out, batch, _]: [usize; 4]| {
        let mut sum = 0.0;
        for [kx, input, _, _] in coordinates([size, inputs, 1, 1]) {
            if let Some(x) = tap(window, 0, x, kx, data.extents()[0]) {
                sum += kernel.at([kx, input, out, 0]) * data.at([x, input, batch, 0]);
            }
        }
        sum
    };
    coordinates(extents(output)).map(element).collect()
}

pub(super) fn conv_2d(window: &Window, kernel: &Elements, data: &Elements, output: &TensorDesc) -> Vec<f64> {
    let [kw, kh, inputs, _] = kernel.extents();
    let [w, h, _, _] = data.extents();
    let element = |[x, y, out, batch]: [usize; 4]| {
        let mut sum = 0.0;
        for [kx, ky, input, _] in coordinates([kw, kh, inputs, 1]) {
            if let (Some(x), Some(y)) = (tap(window, 0, x, kx, w), tap(window, 1, y, ky, h)) {
                sum += kernel.at([kx, ky, input, out]) * data.at([x, y, input, batch]);
            }
        }
        sum
    };
    coordinates(extents(output)).map(element).collect()
}

pub(super) fn conv_depthwise_2d(
    window: &Window,
    kernel: &Elements,
    data: &Elements,
    output: &TensorDesc,
) -> Vec<f64> {
    let [kw, kh, _, _] = kernel.extents();
    let [w, h, _, _] = data.extents();
    let element = |[x, y, channel, batch]: [usize; 4]| {
        let mut sum = 0.0;
        for [kx, ky, _, _] in coordinates([kw, kh, 1, 1]) {
            if let (Some(x), Some(y)) = (tap(window, 0, x, kx, w), tap(window, 1, y, ky, h)) {
                sum += kernel.at([kx, ky, 0, channel]) * data.at([x, y, channel, batch]);
            }
        }
        sum
    };
    coordinates(extents(output)).map(element).collect()
}

pub(super) fn conv_transpose_1d(
    stride: u32,
    kernel: &Elements,
    data: &Elements,
    output: &TensorDesc,
) -> Vec<f64> {
    let [size, outs, inputs, _] = kernel.extents();
    let ([length, _, _, _], [width, _, _, _]) = (data.extents(), extents(output));
    let mut result = vec![0.0; output.elements() as usize];
    for [kx, out, input, x] in coordinates([size, outs, inputs, length]) {
        let at = out * width + x * stride as usize + kx;
        result[at] += kernel.at([kx, out, input, 0]) * data.at([x, input, 0, 0]);
    }
    result
}

pub(super) fn conv_transpose_2d(
    stride: u32,
    kernel: &Elements,
    data: &Elements,
    output: &TensorDesc,
) -> Vec<f64> {
    let ([w, h, _, batches], [width, height, outs, _]) = (data.extents(), extents(output));
    let stride = stride as usize;
    let mut result = vec![0.0; output.elements() as usize];
    for [x, y, batch, _] in coordinates([w, h, batches, 1]) {
        for [kx, ky, out, input] in coordinates(kernel.extents()) {
            let row = (batch * outs + out) * height + y * stride + ky;
            result[row * width + x * stride + kx] +=
                kernel.at([kx, ky, out, input]) * data.at([x, y, input, batch]);
        }
    }
    result
}
