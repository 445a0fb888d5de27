//! Transposed convolutions. Kernels and data are laid out anew with channels innermost, so that each pair of a
//! kernel element and an input that reaches an output is one product of two rows.

use orlop_graph::{Op, TensorDesc};

use crate::access::{RowIndex, Src};
use crate::simd::dot;
use crate::task::{Task, Thread, row_at};

/// Extents; one-dimensional data has height 1.
#[derive(Clone, Copy, Debug)]
struct TransposedShape {
    two_d: bool,
    stride: u64,
    /// Width and height of the kernel.
    kernel: [u64; 2],
    outputs: u64,
    inputs: u64,
    /// Width and height of the data.
    data: [u64; 2],
    batches: u64,
}

impl TransposedShape {
    fn new(op: &Op, kernel: &TensorDesc, data: &TensorDesc) -> TransposedShape {
        let ([k0, k1, k2, k3], [n0, n1, _, n3]) = (kernel.extents, data.extents);
        match op {
            Op::ConvTranspose2d { stride } => {
                let (kernel, data, stride) = ([k0, k1], [n0, n1], u64::from(*stride));
                TransposedShape { two_d: true, stride, kernel, outputs: k2, inputs: k3, data, batches: n3 }
            }
            Op::ConvTranspose1d { stride } => {
                let (kernel, data, stride) = ([k0, 1], [n0, 1], u64::from(*stride));
                TransposedShape { two_d: false, stride, kernel, outputs: k1, inputs: k2, data, batches: 1 }
            }
            _ => {
                let (kernel, data) = ([0; 2], [0; 2]);
                TransposedShape { two_d: true, stride: 1, kernel, outputs: 0, inputs: 0, data, batches: 0 }
            }
        }
    }

    fn kernel_row(&self, ky: u64, output: u64, input: u64) -> RowIndex {
        if self.two_d { [ky, output, input] } else { [output, input, 0] }
    }

    fn data_row(&self, y: u64, input: u64, batch: u64) -> RowIndex {
        if self.two_d { [y, input, batch] } else { [input, 0, 0] }
    }

    /// Height, channel and batch of the result's row number `row`.
    fn result_row(&self, result: &TensorDesc, row: u64) -> [u64; 3] {
        let [first, second, third] = row_at(result, row);
        if self.two_d { [first, second, third] } else { [0, first, 0] }
    }

    /// Shared rows of the kernel; those of the data follow.
    fn kernel_rows(&self) -> u64 {
        self.kernel[0].saturating_mul(self.kernel[1]).saturating_mul(self.outputs)
    }

    /// Kernel elements and inputs that meet at an output, along one dimension.
    fn meetings(&self, dim: usize, at: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (stride, extent) = (self.stride, self.data[dim]);
        let elements = (at % stride..self.kernel[dim].min(at + 1)).step_by(stride as usize);
        elements.map(move |element| (element, (at - element) / stride)).filter(move |(_, at)| *at < extent)
    }
}

/// A row of kernel, data or result.
pub(super) fn scratch(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> u64 {
    operands[0].extents[0].max(operands[1].extents[0]).max(result.extents[0])
}

/// For each output channel and kernel element, then for each data element, its input channels.
pub(super) fn channel_rows(op: &Op, operands: &[TensorDesc], _: &TensorDesc) -> (u64, u64) {
    let shape = TransposedShape::new(op, &operands[0], &operands[1]);
    let data = shape.data[0].saturating_mul(shape.data[1]).saturating_mul(shape.batches);
    (shape.kernel_rows().saturating_add(data), shape.inputs)
}

pub(super) fn convolve(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let shape = TransposedShape::new(&task.op, &task.src[0].desc, &task.src[1].desc);
    if thread.phase == 0 {
        lay_out(task, thread, &shape, scratch);
        return;
    }
    let ([kw, kh], [w, h]) = (shape.kernel, shape.data);
    let row = &mut scratch[..task.dst.desc.extents[0] as usize];
    for number in thread.part(task.dst.desc.rows()) {
        let [y, output, batch] = shape.result_row(&task.dst.desc, number);
        for (x, result) in (0..).zip(row.iter_mut()) {
            let mut sum = 0.0;
            for (ky, from_y) in shape.meetings(1, y).filter(|_| shape.inputs > 0) {
                for (kx, from_x) in shape.meetings(0, x) {
                    let kernel = task.shared.row((output * kh + ky) * kw + kx);
                    let data = (batch * h + from_y) * w + from_x;
                    let data = task.shared.row(shape.kernel_rows() + data);
                    sum += f64::from(dot(task.isa, kernel, data));
                }
            }
            *result = sum as f32;
        }
        task.dst.write_row(row_at(&task.dst.desc, number), row);
    }
}

/// Fills the shared rows, a line of the kernel or of the data at a time.
fn lay_out(task: &Task, thread: Thread, shape: &TransposedShape, scratch: &mut [f32]) {
    let ([kw, kh], [w, h]) = (shape.kernel, shape.data);
    let kernel_lines = kh * shape.outputs;
    for line in thread.part(kernel_lines + h * shape.batches) {
        if line < kernel_lines {
            let at = |input| shape.kernel_row(line % kh, line / kh, input);
            transpose(task, &task.src[0], line * kw, &mut scratch[..kw as usize], shape.inputs, at);
        } else {
            let line = line - kernel_lines;
            let (first, at) =
                (shape.kernel_rows() + line * w, |input| shape.data_row(line % h, input, line / h));
            transpose(task, &task.src[1], first, &mut scratch[..w as usize], shape.inputs, at);
        }
    }
}

/// Makes columns of a line's rows, one row a channel, the shared rows from `first` on.
fn transpose(
    task: &Task,
    src: &Src,
    first: u64,
    row: &mut [f32],
    channels: u64,
    at: impl Fn(u64) -> RowIndex,
) {
    for channel in 0..channels {
        src.read_row(at(channel), row);
        for (column, value) in (first..).zip(&*row) {
            task.shared.fill(column, |shared| shared[channel as usize] = *value);
        }
    }
}
