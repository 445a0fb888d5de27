//! Normalisation: of rows to mean 0 and variance 1, by their root mean square or by their length, and of groups
//! of channels. Sums and quotients are `f64`, as a mean may be far larger than the deviations from it.

use orlop_backend::Step;
use orlop_graph::{DType, Graph, Op, TensorDesc};

use super::product::{Rounding, round_row};
use crate::access::RowIndex;
use crate::isa::Isa;
use crate::task::{
    self, Kernel, KernelBody, StepKernel, StepOperand, StepOperands, StepShape, Task, Thread, all_floats,
    repeated, row_at,
};
use crate::vector::function::{Add, Mul};
use crate::vector::{Floats, FloatsMut, ScaledTo, Shifted, Squares, Sum, Zip, on};

/// A norm, times a weight, and plus a bias if there is a third node; rounded, if the name ends so.
pub(crate) const SCALED_NORM: &str = "scaled norm";

// SAFETY: the phase rule: each row of the result is one thread's, which reads the same row of the operand.
pub(crate) const ROWS: Kernel =
    Kernel::simple(all_floats, one_row, unsafe { KernelBody::new(rows) }.by_rows());

// SAFETY: the phase rule: each group of channels of the result is one thread's, which reads the same elements of the
// operand.
pub(crate) const GROUPS: Kernel = Kernel::simple(all_floats, one_row, unsafe { KernelBody::new(groups) });

pub(crate) fn named(name: &str, _: Option<Rounding>) -> Option<StepKernel> {
    (name == SCALED_NORM).then_some(StepKernel {
        operands: scaled_operands,
        needs: two_rows,
        check: None,
        // SAFETY: the phase rule: each row of the result is one thread's, which reads the same row of the operand that the
        // result may lie on; others lie apart.
        body: unsafe { KernelBody::new(scaled) }.by_rows(),
    })
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

/// Reads: what is normed, the weight, the bias.
fn scaled_operands(graph: &Graph, step: &Step) -> Option<StepOperands> {
    let nodes: Vec<_> =
        step.nodes.iter().map(|node| graph.nodes().get(node.index())).collect::<Option<_>>()?;
    let (norm, others) = nodes.split_first()?;
    let x = norm.inputs[0];
    let f32 = |id| graph.tensor(id).desc.dtype == DType::F32;
    if !matches!(norm.op, Op::Norm { .. } | Op::RmsNorm { .. }) || !f32(x) || !f32(norm.output) {
        return None;
    }
    let (mut reads, mut last) = (vec![StepOperand::Tensor(x)], norm.output);
    for (node, op) in others.iter().zip([Op::Mul, Op::Add]) {
        let [before, by] = node.inputs[..] else { return None };
        // The row that is normed may be gone when the others are read.
        let apart = graph.tensor(by).storage.root != graph.tensor(x).storage.root;
        let fits =
            before == last && apart && graph.tensor(by).desc.extents[0] == graph.tensor(x).desc.extents[0];
        if node.op != op || !fits || !f32(node.output) {
            return None;
        }
        reads.push(StepOperand::Tensor(by));
        last = node.output;
    }
    let result = match Rounding::of_kernel(&step.kernel) {
        Some(rounding) => StepOperand::Rounded(last, rounding),
        None => StepOperand::Tensor(last),
    };
    (2..=3).contains(&nodes.len()).then(|| StepOperands { reads, writes: vec![result] })
}

fn two_rows(shape: &StepShape<'_>) -> task::FloatScratch {
    task::FloatScratch { scratch: shape.reads[0].extents[0].saturating_mul(2), shared: (0, 0) }
}

fn scaled(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let (isa, x) = (task.isa, &task.src[0]);
    let length = x.desc.extents[0] as usize;
    let (values, other) = scratch[..2 * length].split_at_mut(length);
    for row in thread.part(x.desc.rows()) {
        let at = row_at(&x.desc, row);
        let normed = x.floats_by(isa, 0, at, other);
        shift(isa, normed, mean_and_divisor(isa, &task.op, normed), FloatsMut::from(&mut *values));
        for (number, by) in task.src[1..].iter().enumerate() {
            let b = by.floats_by(isa, 0, repeated(&by.desc, at), other);
            let out = FloatsMut::from(&mut *values);
            match number {
                0 => on(isa, Zip { function: Mul, a: out.as_floats(), b, out }),
                _ => on(isa, Zip { function: Add, a: out.as_floats(), b, out }),
            }
        }
        if Rounding::of(&task.dst.desc).is_some() {
            round_row(task, &task.dst, at, values);
        } else {
            task.dst.write_floats(0, at, values);
        }
    }
}

/// Takes a mean off a row and divides by something.
fn shift(isa: Isa, x: Floats<'_>, (mean, divisor): (f64, f64), out: FloatsMut<'_>) {
    let factor = 1.0 / divisor;
    // Nothing is lost where nothing is taken off, nor is the factor, if it is a float.
    if mean == 0.0 && (factor as f32).is_normal() {
        on(isa, ScaledTo { from: x, to: out, factor: factor as f32 });
    } else {
        on(isa, Shifted { x, mean, factor, out });
    }
}

/// Takes a mean off row `at` and divides by something; both come from the row.
fn change(task: &Task, at: RowIndex, scratch: &mut [f32], by: impl FnOnce(Floats<'_>) -> (f64, f64)) {
    let (src, isa, length) = (&task.src[0], task.isa, scratch.len());
    match (src.floats(0, at, length), task.dst.floats(0, at, length)) {
        (Some(x), Some(out)) => shift(isa, x, by(x), out),
        (None, Some(out)) => {
            let x = src.floats_by(isa, 0, at, scratch);
            shift(isa, x, by(x), out);
        }
        (_, None) => {
            src.read(isa, 0, at, scratch);
            let out = FloatsMut::from(&mut *scratch);
            shift(isa, out.as_floats(), by(out.as_floats()), out);
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
