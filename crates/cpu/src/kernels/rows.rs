//! Rows read from a table, and written into one, where indices say.

use orlop_backend::{DeviceError, Reason};
use orlop_graph::{Op, TensorDesc};

use super::movement::{Carrier, convertible, writer};
use crate::access::{Dst, RowIndex, Src};
use crate::isa::Isa;
use crate::task::{Kernel, KernelBody, Task, TaskInputs, Thread, float, no_scratch, row_at};

pub(crate) const GET_ROWS: Kernel = Kernel {
    check: Some(check_get),
    // SAFETY: the phase rule: each row of the result is one thread's; operands lie apart.
    ..Kernel::simple(accepts_table, no_scratch, unsafe { KernelBody::new(get_rows) })
};

pub(crate) const SET_ROWS: Kernel = Kernel {
    check: Some(check_set),
    // SAFETY: the phase rule: each row of the table is one thread's (`has_turn`), or all are the first's where rows of
    // the table or operands share its memory (`writer`, `set_rows_within`).
    ..Kernel::simple(accepts_rows, no_scratch, unsafe { KernelBody::new(set_rows) })
};

fn accepts_table(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    convertible(operands[0].dtype, 0, result.dtype, 2)
}

fn accepts_rows(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    let dtype = operands[1].dtype;
    if !float(dtype) {
        return Err(Reason::DType { operand: 1, dtype });
    }
    convertible(dtype, 1, result.dtype, 3)
}

fn check_get(task: &TaskInputs<'_>) -> Result<(), DeviceError> {
    check_indices(task, &task.src[1], task.src[0].desc.extents[1], |_| false)
}

fn check_set(task: &TaskInputs<'_>) -> Result<(), DeviceError> {
    check_written(task, &task.src[1], &task.src[2])
}

/// Looks at where rows are to be written to.
pub(super) fn check_written(task: &TaskInputs<'_>, rows: &Src, indices: &Src) -> Result<(), DeviceError> {
    // Outer extents of 0 are covered by any indices, which then say nothing.
    if rows.desc.rows() == 0 {
        return Ok(());
    }
    check_indices(task, indices, task.result.extents[1], |index| index == -1)
}

/// Finds the first index, in element order, that is neither a row's nor to be skipped.
fn check_indices(
    task: &TaskInputs<'_>,
    indices: &Src,
    rows: u64,
    skipped: impl Fn(i64) -> bool,
) -> Result<(), DeviceError> {
    if indices.desc.is_empty() {
        return Ok(());
    }
    for row in 0..indices.desc.rows() {
        let at = row_at(&indices.desc, row);
        for column in 0..indices.desc.extents[0] {
            let index = indices.integer(column, at);
            if !skipped(index) && u64::try_from(index).map_or(true, |index| index >= rows) {
                let op = task.more.last().unwrap_or(task.op).name().to_owned();
                let tensor = task.name.to_owned();
                return Err(DeviceError::BadIndex { op, tensor, index, rows });
            }
        }
    }
    Ok(())
}

/// Elements that are converted at a time: whole blocks of every type, and so few that memory for them is quickly filled.
const AT_ONCE: usize = 256;

/// Moves or converts rows of one tensor to another.
struct RowMover<'a> {
    isa: Isa,
    src: &'a Src,
    dst: &'a Dst,
    values: [f32; AT_ONCE],
    /// For rows that stay what they are.
    carrier: Option<Carrier>,
}

impl<'a> RowMover<'a> {
    fn new(isa: Isa, src: &'a Src, dst: &'a Dst) -> RowMover<'a> {
        let carrier = (src.desc.dtype == dst.desc.dtype).then(Carrier::new);
        RowMover { isa, src, dst, values: [0.0; AT_ONCE], carrier }
    }

    fn copy(&mut self, from: RowIndex, to: RowIndex) {
        let RowMover { isa, src, dst, values, carrier } = self;
        let length = dst.desc.extents[0];
        if let Some(carrier) = carrier {
            let blocks = length / dst.desc.dtype.block_elements();
            return carrier.copy(src, (0, from), dst, (0, to), blocks);
        }
        for column in (0..length).step_by(AT_ONCE) {
            let values = &mut values[..(length - column).min(AT_ONCE as u64) as usize];
            src.read(*isa, column, from, values);
            dst.write(*isa, column, to, values);
        }
    }
}

fn get_rows(task: &Task, thread: Thread, _: &mut [f32]) {
    let (table, indices) = (&task.src[0], &task.src[1]);
    let mut mover = RowMover::new(task.isa, table, &task.dst);
    for row in thread.part(task.dst.desc.rows()) {
        let to @ [number, i2, i3] = row_at(&task.dst.desc, row);
        let index = indices.integer(number, [i2, i3, 0]) as u64;
        mover.copy([index, i2, i3], to);
    }
}

fn set_rows(task: &Task, thread: Thread, _: &mut [f32]) {
    let [_, rows, indices] = &task.src[..] else { return };
    if task.dst.touches(rows) || task.dst.touches(indices) {
        if thread.is_first() {
            set_rows_within(task, rows, indices);
        }
        return;
    }
    // Each thread goes through all indices and writes rows of its own, so that the last of several rows with one
    // index stays.
    let Some(thread) = writer(&task.dst.desc, thread) else { return };
    let mut mover = RowMover::new(task.isa, rows, &task.dst);
    for row in 0..rows.desc.rows() {
        let from = row_at(&rows.desc, row);
        if let Some(to) = destination(indices, from)
            && thread.has_turn(to.iter().sum())
        {
            mover.copy(from, to);
        }
    }
}

/// Where a row goes, unless it is skipped.
pub(super) fn destination(indices: &Src, [number, i2, i3]: RowIndex) -> Option<RowIndex> {
    let [_, n2, n3, _] = indices.desc.extents;
    // Divisions are slow, and mostly not needed.
    let within = |i: u64, n: u64| {
        if i < n {
            i
        } else if n == 1 {
            0
        } else {
            i % n
        }
    };
    let index = indices.integer(number, [within(i2, n2), within(i3, n3), 0]);
    u64::try_from(index).ok().map(|index| [index, i2, i3])
}

/// Rows or indices that lie in the destination: all are read before anything is written. One thread does it.
fn set_rows_within(task: &Task, rows: &Src, indices: &Src) {
    let length = rows.desc.extents[0] as usize;
    let mut values = vec![0.0; length * rows.desc.rows() as usize];
    let mut places = Vec::with_capacity(rows.desc.rows() as usize);
    for (row, values) in (0..).zip(values.chunks_exact_mut(length)) {
        let from = row_at(&rows.desc, row);
        rows.read_elements(0, from, values);
        places.push(destination(indices, from));
    }
    for (to, values) in places.into_iter().zip(values.chunks_exact(length)) {
        if let Some(to) = to {
            task.dst.write_elements(0, to, values);
        }
    }
}
