//! Functions of vectors.

use super::Lanes;

/// `e` to the power of `x`, to about one unit in the last place, subnormal results included.
#[inline(always)]
pub(super) fn exp<L: Lanes>(x: L) -> L {
    // Beyond these everything is infinite or zero; NaN stays.
    let x = x.at_most(L::splat(150.0)).at_least(L::splat(-150.0));
    // Adding 1.5 · 2²³ rounds to the nearest integer.
    let round = L::splat(12_582_912.0);
    let n = x.mul_add(L::splat(std::f32::consts::LOG2_E), round).sub(round);
    // ln 2 in two parts, the first with so few bits that its product is exact.
    let r = n.mul_add(L::splat(-0.693_359_4), x);
    let r = n.mul_add(L::splat(2.121_944_4e-4), r);
    // Taylor's series: what is left out is below 6e-9 for |r| up to ln 2 / 2.
    let sum = L::splat(1.0 / 5040.0).mul_add(r, L::splat(1.0 / 720.0));
    let sum = sum.mul_add(r, L::splat(1.0 / 120.0));
    let sum = sum.mul_add(r, L::splat(1.0 / 24.0));
    let sum = sum.mul_add(r, L::splat(1.0 / 6.0));
    let sum = sum.mul_add(r, L::splat(0.5));
    let sum = sum.mul_add(r, L::splat(1.0));
    let sum = sum.mul_add(r, L::splat(1.0));
    sum.times_two_to(n)
}

/// As [`exp`], of one number.
#[inline(always)]
pub(crate) fn exp_of<L: Lanes>(x: f32) -> f32 {
    exp(L::splat(x)).first()
}

/// `x / (1 + exp(-z))`.
#[inline(always)]
pub(super) fn gated<L: Lanes>(x: L, z: L) -> L {
    let one = L::splat(1.0);
    x.div(one.add(exp(L::splat(0.0).sub(z))))
}

/// The hyperbolic tangent, off by at most some 1e-7: small results have few digits.
#[inline(always)]
pub(super) fn tanh<L: Lanes>(x: L) -> L {
    let (one, t) = (L::splat(1.0), exp(x.abs().mul(L::splat(-2.0))));
    one.sub(t).div(one.add(t)).with_sign(x)
}
