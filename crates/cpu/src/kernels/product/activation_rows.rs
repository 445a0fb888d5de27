//! Which rows of activations a matrix is multiplied with, and where the products go.

use std::ops::Range;

use orlop_graph::TensorDesc;

use crate::access::RowIndex;
use crate::task::Thread;
use crate::work_shares::WorkShares;

/// Rows of activations for one matrix: the number of each, and the row of the result that it gives.
pub(super) trait ActivationRows {
    fn count(&self) -> u64;
    fn get(&self, index: u64) -> (u64, RowIndex);
}

/// The rows of all right-hand matrices that share a left-hand one.
pub(super) struct BroadcastRows {
    /// First of the right-hand matrices, in dimensions 2 and 3, and how many.
    first: [u64; 2],
    shared: [u64; 2],
    /// Rows, and matrices in dimension 2, on the right.
    rows: u64,
    matrices: u64,
}

impl BroadcastRows {
    /// Those for matrix number `matrix` on the left.
    pub(super) fn of(left: &TensorDesc, right: [u64; 3], matrix: u64) -> BroadcastRows {
        let [_, _, a2, a3] = left.extents;
        let [n, b2, b3] = right;
        let shared = [b2 / a2, b3 / a3];
        BroadcastRows {
            first: [matrix % a2 * shared[0], matrix / a2 * shared[1]],
            shared,
            rows: n,
            matrices: b2,
        }
    }
}

impl ActivationRows for BroadcastRows {
    fn count(&self) -> u64 {
        self.rows * self.shared[0] * self.shared[1]
    }

    fn get(&self, index: u64) -> (u64, RowIndex) {
        // Divisions are slow and rarely needed.
        let (i1, matrix) =
            if index < self.rows { (index, 0) } else { (index % self.rows, index / self.rows) };
        let (j2, j3) = if matrix == 0 { (0, 0) } else { (matrix % self.shared[0], matrix / self.shared[0]) };
        let (i2, i3) = (self.first[0] + j2, self.first[1] + j3);
        ((i3 * self.matrices + i2) * self.rows + i1, [i1, i2, i3])
    }
}

/// How many of a product's pieces a thread takes at a time: enough for long sequential reads, few enough that threads end
/// together.
pub(super) fn at_once(thread: Thread, items: u64) -> u64 {
    (items / (4 * thread.count as u64)).clamp(1, 16)
}

/// The units of rows that fall to a thread, if each of `matrices` matrices has `units`: runs of up to `most` neighbours in
/// one matrix, which is read straight through.
pub(super) fn runs(
    taken: &WorkShares,
    thread: Thread,
    matrices: u64,
    units: u64,
    most: u64,
) -> impl Iterator<Item = (u64, Range<u64>)> {
    let all = matrices * units;
    taken.pieces(thread, all, at_once(thread, all)).flat_map(move |mut piece| {
        std::iter::from_fn(move || {
            if piece.is_empty() {
                return None;
            }
            let (matrix, first) = (piece.start / units, piece.start % units);
            let last = units.min(first + most).min(first + piece.end - piece.start);
            piece.start += last - first;
            Some((matrix, first..last))
        })
    })
}

/// A piece of work: some units of rows of one matrix, with some rows of activations.
pub(super) struct ProductPiece {
    pub(super) matrix: u64,
    pub(super) unit: u64,
    pub(super) right: Range<u64>,
}

/// A thread's pieces, if each of `matrices` matrices has `units` units and meets `count` rows of activations. Where
/// there are few units, the activations are divided too, `step` at least at a time.
pub(super) fn pieces(
    taken: &WorkShares,
    thread: Thread,
    matrices: u64,
    units: u64,
    count: u64,
    step: u64,
) -> impl Iterator<Item = ProductPiece> {
    let wanted =
        if thread.count == 1 { 1 } else { (4 * thread.count as u64).div_ceil((matrices * units).max(1)) };
    let each = count.div_ceil(wanted).next_multiple_of(step).max(1);
    let parts = count.div_ceil(each);
    let items = matrices * units * parts;
    taken.pieces(thread, items, at_once(thread, items)).flatten().map(move |piece| {
        let (part, unit) = (piece % parts, piece / parts);
        let right = part * each..count.min((part + 1) * each);
        ProductPiece { matrix: unit / units, unit: unit % units, right }
    })
}
