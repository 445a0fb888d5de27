//! Normalisation: of rows to mean 0 and variance 1, by their root mean square or by their length, and of groups
//! of channels. Sums and quotients are `f64`, as a mean may be far larger than the deviations from it.

use orlop_graph::{Op, TensorDesc};

use crate::access::At;
use crate::isa::Isa;
use crate::task::{Kernel, Task, Thread, all_floats, row_at};
use crate::vector::{Floats, FloatsMut, Shifted, Squares, Sum, on};

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
    let scratch = &mut scratch[..task.dst.desc.extents[0] as usize];
    for index in thread.part(task.dst.desc.rows()) {
        let at = row_at(&task.dst.desc, index);
        change(task, at, scratch, |x| mean_and_divisor(task.isa, &task.op, x));
    }
}

fn mean_and_divisor(isa: Isa, op: &Op, x: Floats<'_>) -> (f64, f64) {
    let length = x.len() as f64;
    match *op {
        Op::RmsNorm { eps } => (0.0, (on(isa, Squares(x, 0.0)) / length + f64::from(eps)).sqrt()),
        Op::L2Norm { eps } => (0.0, on(isa, Squares(x, 0.0)).sqrt().max(f64::from(eps))),
        Op::Norm { eps } => {
            let mean = on(isa, Sum(x)) / length;
            (mean, (on(isa, Squares(x, mean)) / length + f64::from(eps)).sqrt())
        }
        _ => (0.0, 1.0),
    }
}

/// Takes a mean off row `at` and divides by something; both come from the row.
fn change(task: &Task, at: At, scratch: &mut [f32], by: impl FnOnce(Floats<'_>) -> (f64, f64)) {
    let (src, isa, length) = (&task.src[0], task.isa, scratch.len());
    let shifted = |x, (mean, divisor): (f64, f64), out| {
        on(isa, Shifted { x, mean, factor: 1.0 / divisor, out });
    };
    match (src.floats(0, at, length), task.dst.floats(0, at, length)) {
        (Some(x), Some(out)) => shifted(x, by(x), out),
        (None, Some(out)) => {
            let x = src.floats_by(isa, 0, at, scratch);
            shifted(x, by(x), out);
        }
        (_, None) => {
            src.read(isa, 0, at, scratch);
            let out = FloatsMut::from(&mut *scratch);
            shifted(out.as_floats(), by(out.as_floats()), out);
            task.dst.write(isa, 0, at, scratch);
        }
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
        let mut total = |of: &dyn Fn(Floats<'_>) -> f64| -> f64 {
            rows().map(|at| of(task.src[0].floats_by(task.isa, 0, at, row))).sum()
        };
        let mean = total(&|row| on(task.isa, Sum(row))) / elements;
        let variance = total(&|row| on(task.isa, Squares(row, mean))) / elements;
        let divisor = (variance + f64::from(eps)).sqrt();
        for at in rows() {
            change(task, at, row, |_| (mean, divisor));
        }
    }
}
