//! Choosing scales: what to multiply integers with so that they come close to the values.
//!
//! The searches minimise a weighted squared error. The weight of a value is its importance, if that is given. Otherwise it
//! is its magnitude plus the group's root mean square: large values matter more in a product, small ones still count. For each of a few trial scales
//! the values are rounded to levels; for those levels the best scale is the least-squares one. The winner is
//! refined by rounding with its scale and solving again.

/// Groups without a larger magnitude get a zero scale. No scale field can hold anything near it.
pub(crate) const NEGLIGIBLE: f32 = 1e-15;

/// No block can hold magnitudes near this: their scale is stored as infinite. Searching would overflow as well,
/// so they are taken as they are.
pub(crate) const BEYOND: f32 = 1e12;

/// How often the best fit may round the values again with its own scale, while that helps.
const REFINEMENTS: usize = 4;

/// The value of largest magnitude, the first of them if several tie.
pub(crate) fn extreme(values: &[f32]) -> f32 {
    values
        .iter()
        .copied()
        .reduce(|best, value| if value.abs() > best.abs() { value } else { best })
        .unwrap_or(0.0)
}

/// The smallest and the largest value. Of zeros with different signs, the first counts.
pub(crate) fn min_max(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), value| {
        (if *value < min { *value } else { min }, if *value > max { *value } else { max })
    })
}

/// `1 / scale`, and 0 for a zero scale. Infinite for scales below about `3e-39`.
pub(crate) fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Drops the fraction and clamps to `0..=top`. Not a number and infinities give 0: they come from a scale with
/// an infinite inverse, which is stored as zero.
pub(crate) fn truncate(value: f32, top: u8) -> u8 {
    if value.is_finite() { (value as u8).min(top) } else { 0 }
}

/// The whole number nearest to `value`, ties to even, within `low..=high`. NaN gives `low`.
///
/// The bounds must be whole and below `2^22` in magnitude.
pub(crate) fn nearest(value: f32, low: f32, high: f32) -> f32 {
    // Adding 1.5 * 2^23 leaves no bits for a fraction, so the sum is rounded by the addition itself. Rounding
    // by name is a library call on processors without the instruction.
    const SHIFT: f32 = 12_582_912.0;
    (value.max(low).min(high) + SHIFT) - SHIFT
}

/// What the squared error of each value counts.
pub(crate) fn weights<const N: usize>(values: &[f32; N], importance: Option<&[f32; N]>) -> [f32; N] {
    if let Some(importance) = importance {
        return *importance;
    }
    let squares: f32 = values.iter().map(|value| value * value).sum();
    let rms = (squares / N as f32).sqrt();
    values.map(|value| rms + value.abs())
}

/// The best scale for levels that `level` picks, given some inverse scales to try.
pub(crate) fn best_scale<const N: usize>(
    values: &[f32; N],
    importance: Option<&[f32; N]>,
    inverses: impl Iterator<Item = f32>,
    level: impl Fn(f32) -> f32,
) -> f32 {
    let extreme = extreme(values);
    if extreme.abs() < NEGLIGIBLE {
        return 0.0;
    }
    if extreme.abs() > BEYOND {
        return extreme;
    }
    let weights = weights(values, importance);
    // With the least-squares scale, the gain is how much of the weighted square sum the levels explain.
    let fit = |inverse: f32| {
        let (mut products, mut squares) = (0.0, 0.0);
        for (value, weight) in values.iter().zip(weights) {
            let level = level(value * inverse);
            products += weight * value * level;
            squares += weight * level * level;
        }
        let scale = products / squares;
        (products * scale, scale)
    };
    let mut best = (0.0, 0.0);
    for inverse in inverses {
        let (gain, scale) = fit(inverse);
        if gain > best.0 {
            best = (gain, scale);
        }
    }
    for _ in 0..REFINEMENTS {
        let (gain, scale) = fit(inverse(best.1));
        if gain <= best.0 || gain.is_nan() {
            break;
        }
        best = (gain, scale);
    }
    best.1
}

/// The best scale for whole levels in `-levels..levels`, signed so that the extreme value leans to `-levels`.
pub(crate) fn symmetric_scale<const N: usize>(
    values: &[f32; N],
    importance: Option<&[f32; N]>,
    levels: f32,
) -> f32 {
    let extreme = extreme(values);
    let inverses = (-9..=9).map(|step| -(levels + 0.1 * step as f32) / extreme);
    best_scale(values, importance, inverses, |value| nearest(value, -levels, levels - 1.0))
}

/// `scale * level - min`; neither is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Affine {
    pub(crate) scale: f32,
    pub(crate) min: f32,
}

/// The best scale and minimum for whole levels in `0..=top`.
pub(crate) fn affine<const N: usize>(values: &[f32; N], importance: Option<&[f32; N]>, top: f32) -> Affine {
    let (low, high) = min_max(values);
    let low = low.min(0.0);
    // Differences from zero and not negations: they keep zeros positive.
    if high - low < NEGLIGIBLE {
        return Affine { scale: 0.0, min: 0.0 - low };
    }
    if high - low > BEYOND {
        return Affine { scale: high - low, min: 0.0 - low };
    }
    let problem = AffineProblem::new(values, importance, top);
    let mut best = (f64::INFINITY, Affine::default());
    for step in -10..=10 {
        let (error, fit) = problem.fit(low, (top + 0.1 * step as f32) / (high - low));
        if error < best.0 {
            best = (error, fit);
        }
    }
    for _ in 0..REFINEMENTS {
        let (error, fit) = problem.fit(-best.1.min, inverse(best.1.scale));
        if error >= best.0 || error.is_nan() {
            break;
        }
        best = (error, fit);
    }
    best.1
}

/// One group of values, with the weighted sums that do not depend on levels.
struct AffineProblem<'a, const N: usize> {
    values: &'a [f32; N],
    weights: [f32; N],
    top: f32,
    w: f64,
    wx: f64,
    wxx: f64,
}

impl<'a, const N: usize> AffineProblem<'a, N> {
    fn new(values: &'a [f32; N], importance: Option<&[f32; N]>, top: f32) -> Self {
        let weights = weights(values, importance);
        let (mut w, mut wx, mut wxx) = (0.0, 0.0, 0.0);
        for (value, weight) in values.iter().zip(weights) {
            let (value, weight) = (f64::from(*value), f64::from(weight));
            w += weight;
            wx += weight * value;
            wxx += weight * value * value;
        }
        AffineProblem { values, weights, top, w, wx, wxx }
    }

    /// Rounds `(value - low) * inverse` to levels and solves for the pair that suits those levels best. Returns
    /// the weighted squared error with it.
    fn fit(&self, low: f32, inverse: f32) -> (f64, Affine) {
        let (mut wl, mut wll, mut wlx) = (0.0, 0.0, 0.0);
        for (value, weight) in self.values.iter().zip(self.weights) {
            let level = nearest((value - low) * inverse, 0.0, self.top);
            wl += weight * level;
            wll += weight * level * level;
            wlx += weight * level * value;
        }
        let (wl, wll, wlx) = (f64::from(wl), f64::from(wll), f64::from(wlx));
        let (w, wx, wxx) = (self.w, self.wx, self.wxx);
        let determinant = w * wll - wl * wl;
        let mut scale = (w * wlx - wx * wl) / determinant;
        let mut offset = (wll * wx - wl * wlx) / determinant;
        // Equal levels leave the pair open, and an offset above zero cannot be stored.
        if !(determinant > 0.0 && offset <= 0.0) {
            scale = wlx / wll;
            offset = 0.0;
        }
        let error = wxx
            + scale * scale * wll
            + offset * offset * w
            + 2.0 * (scale * offset * wl - scale * wlx - offset * wx);
        (error, Affine { scale: scale.max(0.0) as f32, min: (0.0 - offset) as f32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rounds_ties_to_even_within_bounds() {
        for (value, expected) in [(0.5, 0.0), (1.5, 2.0), (-2.5, -2.0), (2.500_000_2, 3.0), (1e30, 31.0)] {
            assert_eq!(nearest(value, -32.0, 31.0), expected);
        }
        assert_eq!(nearest(f32::NAN, -4.0, 3.0), -4.0);
        assert_eq!(nearest(f32::NEG_INFINITY, -4.0, 3.0), -4.0);
    }

    #[test]
    fn symmetric_scales_know_that_the_largest_level_is_missing() {
        // With -4 and 4 as levels, a scale of 1 would do; with -4 and 3, both values are 3 of a larger one.
        let values = [4.0, -3.9];
        let scale = symmetric_scale(&values, None, 4.0);
        let error = values.map(|value| value - scale * nearest(value / scale, -4.0, 3.0));
        assert!(error.iter().all(|error| error.abs() < 0.2), "{scale}, {error:?}");
    }

    #[test]
    fn the_first_of_equal_magnitudes_is_the_extreme() {
        assert_eq!(extreme(&[1.0, -3.0, 3.0]), -3.0);
        assert_eq!(extreme(&[]), 0.0);
    }

    #[test]
    fn values_on_a_grid_get_the_grid_back() {
        let values: [f32; 16] = std::array::from_fn(|i| (i as f32 - 8.0) * 0.25);
        assert!((symmetric_scale(&values, None, 8.0) - 0.25).abs() < 1e-6);
        let fit = affine(&values, None, 15.0);
        assert!((fit.scale - 0.25).abs() < 1e-6 && (fit.min - 2.0).abs() < 1e-5, "{fit:?}");
    }

    #[test]
    fn equal_values_are_exact() {
        assert_eq!(affine(&[-3.0; 16], None, 3.0), Affine { scale: 0.0, min: 3.0 });
        let fit = affine(&[3.0; 16], None, 3.0);
        let level = 3.0 / fit.scale;
        assert!((level - level.round()).abs() < 1e-6 && level <= 3.0 && fit.min == 0.0, "{fit:?}");
        assert_eq!(affine(&[0.0; 16], None, 3.0), Affine::default());
        assert_eq!(symmetric_scale(&[0.0; 16], None, 4.0), 0.0);
    }
}
