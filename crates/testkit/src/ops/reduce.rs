//! Sums of rows.

use super::coordinates::outer;
use crate::Elements;

/// One number a row, also for rows without elements.
pub(super) fn each_row(x: &Elements, function: fn(&[f64]) -> f64) -> Vec<f64> {
    let [_, b, c, d] = x.extents();
    outer([b, c, d]).map(|at| function(x.row(at))).collect()
}

pub(super) fn running_sums(x: &Elements) -> Vec<f64> {
    let sums = x.rows().flat_map(|row| {
        row.iter().scan(0.0, |sum, x| {
            *sum += x;
            Some(*sum)
        })
    });
    sums.collect()
}
