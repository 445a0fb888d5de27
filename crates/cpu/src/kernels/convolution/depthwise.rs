//! Each channel with a kernel of its own: a row of the result is the sum of shifted data rows.

use orlop_graph::{Op, TensorDesc};

use crate::task::{Task, Thread, row_at};

/// A row of the result, of the data and of the kernel.
pub(super) fn scratch(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> u64 {
    let [kernel, data] = [operands[0].extents[0], operands[1].extents[0]];
    result.extents[0].saturating_add(data).saturating_add(kernel)
}

pub(super) fn convolve(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::ConvDepthwise2d(window) = &task.op else { return };
    let (kernel, data) = (&task.src[0], &task.src[1]);
    let ([kw, kh, _, _], [w, h, _, _]) = (kernel.desc.extents, data.desc.extents);
    let [stride_x, stride_y] = window.stride.map(u64::from);
    let [padding_x, padding_y] = window.padding.map(u64::from);
    let [dilation_x, dilation_y] = window.dilation.map(u64::from);

    let width = task.dst.desc.extents[0];
    let (result, rest) = scratch.split_at_mut(width as usize);
    let (line, rest) = rest.split_at_mut(w as usize);
    let weights = &mut rest[..kw as usize];
    for row in thread.part(task.dst.desc.rows()) {
        let [y, channel, batch] = row_at(&task.dst.desc, row);
        result.fill(0.0);
        for ky in 0..kh {
            let inside = (y * stride_y + ky * dilation_y).checked_sub(padding_y).filter(|y| *y < h);
            let Some(from) = inside.filter(|_| w > 0) else { continue };
            data.read_row([from, channel, batch], line);
            kernel.read_row([ky, 0, channel], weights);
            for (kx, weight) in (0..).zip(&*weights) {
                // Results x for which x * stride + shift - padding is a column of the data.
                let shift = kx * dilation_x;
                let first = padding_x.saturating_sub(shift).div_ceil(stride_x);
                let end = (padding_x + w).saturating_sub(shift).div_ceil(stride_x).min(width);
                if first < end {
                    let columns = line[(first * stride_x + shift - padding_x) as usize..].iter();
                    let results = &mut result[first as usize..end as usize];
                    for (result, x) in results.iter_mut().zip(columns.step_by(stride_x as usize)) {
                        *result += weight * x;
                    }
                }
            }
        }
        task.dst.write_row([y, channel, batch], result);
    }
}
