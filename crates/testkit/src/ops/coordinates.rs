//! Coordinates of elements in element order.

use orlop_graph::DIMS;

/// All coordinates within some extents, innermost first.
pub(super) fn coordinates(extents: [usize; DIMS]) -> impl Iterator<Item = [usize; DIMS]> {
    // An extent of 0 anywhere means that there is nothing, however large the others are.
    let [a, b, c, d] = if extents.contains(&0) { [0; DIMS] } else { extents };
    outer([b, c, d]).flat_map(move |[j, k, l]| (0..a).map(move |i| [i, j, k, l]))
}

/// All coordinates of rows: dimensions 1, 2 and 3.
pub(super) fn outer([b, c, d]: [usize; DIMS - 1]) -> impl Iterator<Item = [usize; DIMS - 1]> {
    (0..d).flat_map(move |l| (0..c).flat_map(move |k| (0..b).map(move |j| [j, k, l])))
}

/// Which repeated or shared element a coordinate means: `whole / part` neighbours share one.
pub(super) fn shared(coordinate: usize, part: usize, whole: usize) -> usize {
    coordinate / (whole / part)
}
