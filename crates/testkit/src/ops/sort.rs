//! Indices of elements by size.

use std::cmp::Ordering;

use orlop_graph::SortDirection;

use super::reduce::each_row;
use crate::Elements;

pub(super) fn arg_max(x: &Elements) -> Vec<f64> {
    each_row(x, |row| {
        let mut best = 0;
        for (index, value) in row.iter().enumerate() {
            if compare(*value, row[best]) == Ordering::Greater {
                best = index;
            }
        }
        best as f64
    })
}

pub(super) fn arg_sort(x: &Elements, direction: SortDirection) -> Vec<f64> {
    x.rows().flat_map(|row| sorted(row, direction)).map(|index| index as f64).collect()
}

pub(super) fn top_k(x: &Elements, k: u64) -> Vec<f64> {
    let largest = x.rows().flat_map(|row| sorted(row, SortDirection::Descending).take(k as usize));
    largest.map(|index| index as f64).collect()
}

fn sorted(row: &[f64], direction: SortDirection) -> impl Iterator<Item = usize> + use<> {
    let mut indices: Vec<usize> = (0..row.len()).collect();
    indices.sort_by(|a, b| match direction {
        SortDirection::Ascending => compare(row[*a], row[*b]),
        SortDirection::Descending => compare(row[*b], row[*a]),
    });
    indices.into_iter()
}

/// NaN is below every number, and all NaNs are equal.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}
