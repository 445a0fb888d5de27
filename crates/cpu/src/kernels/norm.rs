//! Normalisation: of rows to mean 0 and variance 1, by their root mean square or by their length, and of groups
//! of channels. Sums and quotients are `f64`, as a mean may be far larger than the deviations from it.

use orlop_graph::{Op, TensorDesc};

use crate::task::{Kernel, Task, Thread, all_floats, row_at};

pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    let run = match op {
        Op::Norm { .. } | Op::RmsNorm { .. } | Op::L2Norm { .. } => rows,
        Op::GroupNorm { .. } => groups,
        _ => return None,
    };
    Some(Kernel::simple(all_floats, one_row, run))
}

fn one_row(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    operands[0].extents[0]
}

fn rows(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let length = task.dst.desc.extents[0] as usize;
    let row = &mut scratch[..length];
    for index in thread.part(task.dst.desc.rows()) {
        let at = row_at(&task.dst.desc, index);
        task.src[0].read_row(at, row);
        let (mean, divisor) = match task.op {
            Op::RmsNorm { eps } => (0.0, (squares(row, 0.0) / length as f64 + f64::from(eps)).sqrt()),
            Op::L2Norm { eps } => (0.0, squares(row, 0.0).sqrt().max(f64::from(eps))),
            Op::Norm { eps } => {
                let mean = sum(row) / length as f64;
                (mean, (squares(row, mean) / length as f64 + f64::from(eps)).sqrt())
            }
            _ => (0.0, 1.0),
        };
        shift_and_divide(row, mean, divisor);
        task.dst.write_row(at, row);
    }
}

/// Each group of channels of each picture is one piece of work.
fn groups(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::GroupNorm { groups, eps } = task.op else { return };
    let [width, height, channels, pictures] = task.dst.desc.extents;
    let row = &mut scratch[..width as usize];
    let group = channels.div_ceil(u64::from(groups)).max(1);
    let groups = channels.div_ceil(group);
    for index in thread.part(groups * pictures) {
        let (picture, first) = (index / groups, index % groups * group);
        let last = (first + group).min(channels);
        let elements = (width * height * (last - first)) as f64;
        let rows = || (first..last).flat_map(|c| (0..height).map(move |y| [y, c, picture]));
        let mut total = |of: &dyn Fn(&[f32]) -> f64| -> f64 {
            let one = |at| {
                task.src[0].read_row(at, row);
                of(row)
            };
            rows().map(one).sum()
        };
        let mean = total(&sum) / elements;
        let variance = total(&|row| squares(row, mean)) / elements;
        for at in rows() {
            task.src[0].read_row(at, row);
            shift_and_divide(row, mean, (variance + f64::from(eps)).sqrt());
            task.dst.write_row(at, row);
        }
    }
}

fn shift_and_divide(row: &mut [f32], mean: f64, divisor: f64) {
    let factor = 1.0 / divisor;
    row.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * factor) as f32);
}

fn sum(row: &[f32]) -> f64 {
    lanes(row, |x| x)
}

/// The sum of squared distances from `mean`.
fn squares(row: &[f32], mean: f64) -> f64 {
    lanes(row, |x| (x - mean) * (x - mean))
}

/// A sum in eight lanes, which the compiler can keep in vectors.
fn lanes(row: &[f32], of: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; 8];
    let (chunks, rest) = row.as_chunks::<8>();
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += of(f64::from(*x));
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|x| of(f64::from(*x))).sum::<f64>()
}
