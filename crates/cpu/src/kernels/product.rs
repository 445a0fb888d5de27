//! Matrix products. Right-hand rows are turned into `f32` once, for all threads; left-hand rows, which are of any
//! type that has a codec, are decoded some at a time by the thread that multiplies with them. Sums are `f32` in
//! many lanes.

use std::ops::Range;

use orlop_backend::{DeviceError, Reason};
use orlop_graph::{DType, Op, TensorDesc};

use crate::access::At;
use crate::simd;
use crate::task::{Kernel, Task, Thread, float, nothing_shared, row_at};

/// Left-hand rows, or rows of an outer product's result, that a thread works on at a time.
const TILE: usize = 16;
/// Rows for one expert that are multiplied with each tile of its matrix.
const BATCH: usize = 64;

pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    let product =
        Kernel { accepts, scratch: tile, shared: right_hand_rows, check: None, phases: 2, run: mul_mat };
    Some(match op {
        Op::MulMat => product,
        Op::MulMatId => Kernel { check: Some(experts_are_in_range), run: mul_mat_id, ..product },
        Op::OutProd => {
            Kernel { scratch: tile_and_row, shared: nothing_shared, phases: 1, run: out_prod, ..product }
        }
        _ => return None,
    })
}

fn accepts(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    for (operand, desc) in operands.iter().chain([result]).enumerate() {
        let fits = match operand {
            0 => decodable(desc.dtype),
            2 if operands.len() == 3 => desc.dtype == DType::I32,
            _ => float(desc.dtype),
        };
        if !fits {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    weights(0, &operands[0])
}

/// Whether elements of a type can be multiplied after decoding.
pub(super) fn decodable(dtype: DType) -> bool {
    !dtype.is_integer() && orlop_quant::supports_decode(dtype)
}

/// Refuses gaps between blocks, which rows are not decoded over.
pub(super) fn weights(operand: usize, desc: &TensorDesc) -> Result<(), Reason> {
    if desc.dtype.is_quantized() && !desc.rows_are_contiguous() {
        return Err(Reason::Strides { operand });
    }
    Ok(())
}

/// A tile of left-hand rows.
fn tile(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    operands[0].extents[0].saturating_mul(TILE as u64)
}

/// A tile of the result's rows, and a left-hand row.
fn tile_and_row(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    operands[0].extents[0].saturating_mul(TILE as u64 + 1)
}

fn right_hand_rows(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> (u64, u64) {
    (operands[1].rows(), operands[1].extents[0])
}

fn read_right_hand(task: &Task, thread: Thread) {
    let right = &task.src[1];
    for index in thread.part(right.desc.rows()) {
        task.shared.fill(index, |row| right.read_row(row_at(&right.desc, index), row));
    }
}

fn mul_mat(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let [depth, m, a2, a3] = task.src[0].desc.extents;
    let [_, n, b2, b3] = task.src[1].desc.extents;
    if depth == 0 {
        return zeros(task, thread);
    }
    if thread.phase == 0 {
        return read_right_hand(task, thread);
    }
    // Neighbouring matrices on the right share one on the left.
    let (shared2, shared3) = (b2 / a2, b3 / a3);
    for (matrix, columns) in runs(thread.part(m * a2 * a3), m) {
        let (i2, i3) = (matrix % a2, matrix / a2);
        let left = Left::read(task, columns, [i2, i3], scratch);
        for i3 in i3 * shared3..(i3 + 1) * shared3 {
            for i2 in i2 * shared2..(i2 + 1) * shared2 {
                for i1 in 0..n {
                    left.multiply((i3 * b2 + i2) * n + i1, [i1, i2, i3]);
                }
            }
        }
    }
}

/// Every thread has its columns of all results, whichever experts they belong to.
fn mul_mat_id(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let [depth, m, experts, _] = task.src[0].desc.extents;
    let [_, each, tokens, _] = task.src[1].desc.extents;
    if depth == 0 {
        return zeros(task, thread);
    }
    if thread.phase == 0 {
        return read_right_hand(task, thread);
    }
    let used = task.dst.desc.extents[1];
    for expert in 0..experts {
        let mut chosen = (0..tokens)
            .flat_map(|token| (0..used).map(move |slot| [slot, token]))
            .filter(|[slot, token]| expert_of(task, *slot, *token) == expert as i64);
        loop {
            let mut batch = [[0; 2]; BATCH];
            let count = batch.iter_mut().zip(&mut chosen).map(|(place, pair)| *place = pair).count();
            if count == 0 {
                break;
            }
            for (_, columns) in runs(thread.part(m), m) {
                let left = Left::read(task, columns, [expert, 0], scratch);
                for [slot, token] in &batch[..count] {
                    left.multiply(token * each + slot % each, [*slot, *token, 0]);
                }
            }
        }
    }
}

fn expert_of(task: &Task, slot: u64, token: u64) -> i64 {
    task.src[2].integer(slot, [token, 0, 0])
}

fn experts_are_in_range(task: &Task) -> Result<(), DeviceError> {
    let rows = task.src[0].desc.extents[2];
    let [_, used, tokens, _] = task.dst.desc.extents;
    if task.dst.desc.is_empty() {
        return Ok(());
    }
    for [slot, token] in (0..tokens).flat_map(|token| (0..used).map(move |slot| [slot, token])) {
        let index = expert_of(task, slot, token);
        if u64::try_from(index).is_ok_and(|expert| expert < rows) {
            continue;
        }
        return Err(DeviceError::BadIndex {
            op: task.op.name().to_owned(),
            tensor: task.name.clone(),
            index,
            rows,
        });
    }
    Ok(())
}

/// Neighbouring rows of a left-hand matrix, decoded.
struct Left<'a> {
    task: &'a Task,
    first: u64,
    rows: &'a [f32],
    depth: usize,
}

impl<'a> Left<'a> {
    fn read(task: &'a Task, columns: Range<u64>, [i2, i3]: [u64; 2], scratch: &'a mut [f32]) -> Left<'a> {
        let depth = task.src[0].desc.extents[0] as usize;
        let rows = &mut scratch[..(columns.end - columns.start) as usize * depth];
        for (row, i1) in rows.chunks_exact_mut(depth).zip(columns.clone()) {
            task.src[0].read_row([i1, i2, i3], row);
        }
        Left { task, first: columns.start, rows, depth }
    }

    /// The products with one right-hand row: neighbouring columns of a row of the result.
    fn multiply(&self, right: u64, result: At) {
        let right = self.task.shared.row(right);
        let mut products = [0.0; TILE];
        let mut count = 0;
        for (product, left) in products.iter_mut().zip(self.rows.chunks_exact(self.depth)) {
            *product = simd::dot(self.task.isa, left, right);
            count += 1;
        }
        self.task.dst.write_elements(self.first, result, &products[..count]);
    }
}

/// Each result row is a sum of left-hand rows, weighted by a column on the right.
fn out_prod(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let [m, depth, a2, a3] = task.src[0].desc.extents;
    let [n, _, b2, b3] = task.src[1].desc.extents;
    let (sums, rest) = scratch.split_at_mut(TILE * m as usize);
    let left = &mut rest[..m as usize];
    for (matrix, rows) in runs(thread.part(n * b2 * b3), n) {
        let (i2, i3) = (matrix % b2, matrix / b2);
        let count = (rows.end - rows.start) as usize;
        let mut factors = [0.0; TILE];
        sums.fill(0.0);
        for i1 in 0..depth {
            task.src[0].read_row([i1, i2 / (b2 / a2), i3 / (b3 / a3)], left);
            task.src[1].read_elements(rows.start, [i1, i2, i3], &mut factors[..count]);
            for (sums, factor) in sums.chunks_exact_mut(left.len()).zip(&factors[..count]) {
                simd::add_scaled(task.isa, sums, *factor, left);
            }
        }
        for (row, sums) in rows.zip(sums.chunks_exact(left.len())) {
            task.dst.write_row([row, i2, i3], sums);
        }
    }
}

/// Cuts a range of rows, of matrices of `rows` each, into runs of at most [`TILE`] within one matrix: the
/// matrix's number, and which of its rows.
fn runs(range: Range<u64>, rows: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= range.end {
            return None;
        }
        let (matrix, first) = (start / rows, start % rows);
        let count = (range.end - start).min(rows - first).min(TILE as u64);
        start += count;
        Some((matrix, first..first + count))
    })
}

/// The products of empty rows.
fn zeros(task: &Task, thread: Thread) {
    if thread.phase > 0 {
        return;
    }
    let rows = task.dst.desc.rows();
    for index in thread.part(rows) {
        let at = row_at(&task.dst.desc, index);
        (0..task.dst.desc.extents[0]).for_each(|column| task.dst.set_value(column, at, 0.0));
    }
}
