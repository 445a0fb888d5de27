//! Outer products.

use std::ops::Range;

use orlop_graph::{Op, TensorDesc};

use crate::simd;
use crate::task::{Task, Thread};

/// Rows of the result that a thread works on at a time.
const TILE: usize = 16;

/// A tile of the result's rows, and a left-hand row.
pub(super) fn scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    operands[0].extents[0].saturating_mul(TILE as u64 + 1)
}

/// Each result row is a sum of left-hand rows, weighted by a column on the right.
pub(super) fn out_prod(task: &Task, thread: Thread, scratch: &mut [f32]) {
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
