//! Sums, means, running sums and largest elements of rows. Sums run in F64, in an order that only depends on the
//! row.

use orlop_backend::Reason;
use orlop_graph::{Op, TensorDesc};

use crate::access::{RowIndex, Src};
use crate::task::{Kernel, KernelBody, SPAN, Task, Thread, all_floats, float, no_scratch, row_at};
use crate::vector::{LargestOf, on};

// SAFETY: the phase rule: one thread writes the only element.
pub(crate) const SUM: Kernel = Kernel::simple(all_floats, no_scratch, unsafe { KernelBody::new(sum) });

// SAFETY: the phase rule: each element is one operand row's, and each row one thread's.
pub(crate) const SUM_ROWS: Kernel =
    Kernel::simple(all_floats, no_scratch, unsafe { KernelBody::new(sum_rows) });

pub(crate) const RUNNING_SUMS: Kernel =
    // SAFETY: the phase rule: a thread reads and writes rows of its own, each part before the next.
    Kernel::simple(all_floats, no_scratch, unsafe { KernelBody::new(running_sums) });

// SAFETY: the phase rule: as for `SUM_ROWS`.
pub(crate) const ARG_MAX: Kernel =
    Kernel::simple(float_operand, no_scratch, unsafe { KernelBody::new(arg_max) });

/// Refuses operands that are no floats; results are indices.
pub(super) fn float_operand(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> Result<(), Reason> {
    let dtype = operands[0].dtype;
    if float(dtype) { Ok(()) } else { Err(Reason::DType { operand: 0, dtype }) }
}

/// The columns where parts of a row begin, and the parts' lengths.
fn parts(length: u64) -> impl Iterator<Item = (u64, usize)> {
    let starts = (0..length).step_by(SPAN);
    starts.map(move |column| (column, (length - column).min(SPAN as u64) as usize))
}

fn sum_row(src: &Src, at: RowIndex) -> f64 {
    const LANES: usize = 8;
    let (mut values, mut lanes) = ([0.0; SPAN], [0.0f64; LANES]);
    for (column, length) in parts(src.desc.extents[0]) {
        let values = &mut values[..length];
        src.read_elements(column, at, values);
        for values in values.chunks(LANES) {
            for (lane, value) in lanes.iter_mut().zip(values) {
                *lane += f64::from(*value);
            }
        }
    }
    lanes.iter().sum()
}

fn sum(task: &Task, thread: Thread, _: &mut [f32]) {
    if thread.is_first() {
        let src = &task.src[0];
        let sum: f64 = (0..src.desc.rows()).map(|row| sum_row(src, row_at(&src.desc, row))).sum();
        task.dst.set_value(0, [0; 3], sum as f32);
    }
}

fn sum_rows(task: &Task, thread: Thread, _: &mut [f32]) {
    let src = &task.src[0];
    for row in thread.part(src.desc.rows()) {
        let at = row_at(&src.desc, row);
        let sum = sum_row(src, at);
        let mean = matches!(task.op, Op::Mean);
        let result = if mean { sum / src.desc.extents[0] as f64 } else { sum };
        task.dst.set_value(0, at, result as f32);
    }
}

fn running_sums(task: &Task, thread: Thread, _: &mut [f32]) {
    let mut values = [0.0; SPAN];
    for row in thread.part(task.dst.desc.rows()) {
        let (at, mut sum) = (row_at(&task.dst.desc, row), 0.0f64);
        for (column, length) in parts(task.dst.desc.extents[0]) {
            let values = &mut values[..length];
            task.src[0].read_elements(column, at, values);
            for value in &mut *values {
                sum += f64::from(*value);
                *value = sum as f32;
            }
            task.dst.write_elements(column, at, values);
        }
    }
}

fn arg_max(task: &Task, thread: Thread, _: &mut [f32]) {
    let (src, mut values) = (&task.src[0], [0.0; SPAN]);
    for row in thread.part(src.desc.rows()) {
        let at = row_at(&src.desc, row);
        // The first part that has the largest element, and where in it.
        let (mut best, mut best_value) = (None, f32::NEG_INFINITY);
        for (column, length) in parts(src.desc.extents[0]) {
            let part = src.floats_by(task.isa, column, at, &mut values[..length]);
            let largest = on(task.isa, LargestOf(part));
            if largest > best_value {
                (best, best_value) = (Some(column), largest);
            }
        }
        let index = match best {
            Some(column) => {
                let length = (src.desc.extents[0] - column).min(SPAN as u64) as usize;
                let part = src.floats_by(task.isa, column, at, &mut values[..length]);
                let place = (0..length).find(|index| part.get(*index) == best_value);
                column + place.unwrap_or(0) as u64
            }
            // Minus infinity is above NaN.
            None => (0..src.desc.extents[0]).find(|column| !src.value(*column, at).is_nan()).unwrap_or(0),
        };
        task.dst.set_integer(at[0], [at[1], at[2], 0], index as i64);
    }
}
