//! Products of matrices.

use super::coordinates::{coordinates, shared};
use super::rows::in_range;
use crate::{Elements, OpFailure};

pub(super) fn mul_mat(a: &Elements, b: &Elements) -> Vec<f64> {
    let ([_, m, a2, a3], [_, n, b2, b3]) = (a.extents(), b.extents());
    let element =
        |[i, j, k, l]: [usize; 4]| dot(a.row([i, shared(k, a2, b2), shared(l, a3, b3)]), b.row([j, k, l]));
    coordinates([m, n, b2, b3]).map(element).collect()
}

/// Which ids choose a matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    All,
    /// All but -1.
    Some,
}

pub(super) fn mul_mat_id(
    a: &Elements,
    b: &Elements,
    ids: &Elements,
    which: Chosen,
) -> Result<Vec<f64>, OpFailure> {
    let ([_, m, _, _], [_, each, _, _], [used, tokens, _, _]) = (a.extents(), b.extents(), ids.extents());
    let element = |[i, slot, token, _]: [usize; 4]| {
        let id = ids.at([slot, token, 0, 0]) as i64;
        if id == -1 && which == Chosen::Some {
            return Ok(0.0);
        }
        let expert = in_range(id, a.desc().extents[2])?;
        Ok(dot(a.row([i, expert, 0]), b.row([slot % each, token, 0])))
    };
    coordinates([m, used, tokens, 1]).map(element).collect()
}

pub(super) fn out_prod(a: &Elements, b: &Elements) -> Vec<f64> {
    let ([m, depth, a2, a3], [n, _, b2, b3]) = (a.extents(), b.extents());
    let element = |[i, j, k, l]: [usize; 4]| {
        let (k_of_a, l_of_a) = (shared(k, a2, b2), shared(l, a3, b3));
        (0..depth).map(|t| a.at([i, t, k_of_a, l_of_a]) * b.at([j, t, k, l])).sum()
    };
    coordinates([m, n, b2, b3]).map(element).collect()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
