//! What a soft-max is made of.

use super::math::{exp, tanh};
use super::{Floats, FloatsMut, Lanes, VectorLoop};

/// Replaces scores by `exp(score - max)`; gives their sum.
pub(crate) struct Weights<'a> {
    pub(crate) scores: &'a mut [f32],
    pub(crate) max: f32,
}

impl VectorLoop for Weights<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let (whole, rest) = self.scores.split_at_mut(self.scores.len() / L::COUNT * L::COUNT);
        let (max, mut sums) = (L::splat(self.max), L::splat(0.0));
        let mut floats = FloatsMut::from(whole);
        for at in (0..floats.len()).step_by(L::COUNT) {
            let weights = exp(floats.as_floats().load::<L>(at).sub(max));
            sums = sums.add(weights);
            floats.store(at, weights);
        }
        if rest.is_empty() {
            return sums.sum();
        }
        let mut floats = FloatsMut::from(&mut *rest);
        floats.store(0, exp(floats.as_floats().load::<L>(0).sub(max)));
        sums.sum() + rest.iter().sum::<f32>()
    }
}

/// Multiplies all elements by a factor.
pub(crate) struct Scaled<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) factor: f32,
}

impl VectorLoop for Scaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let mut floats = FloatsMut::from(self.x);
        for at in (0..floats.len()).step_by(L::COUNT) {
            let x = floats.as_floats().load::<L>(at);
            floats.store(at, x.mul(L::splat(self.factor)));
        }
    }
}

/// `x = x * factor + other * other_factor`, for all elements.
pub(crate) struct ScaledSum<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) factor: f32,
    pub(crate) other: &'a [f32],
    pub(crate) other_factor: f32,
}

impl VectorLoop for ScaledSum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        assert_eq!(self.x.len(), self.other.len());
        let (mut x, other) = (FloatsMut::from(self.x), Floats::from(self.other));
        for at in (0..other.len()).step_by(L::COUNT) {
            let scaled = x.as_floats().load::<L>(at).mul(L::splat(self.factor));
            x.store(at, other.load::<L>(at).mul_add(L::splat(self.other_factor), scaled));
        }
    }
}

/// Writes all elements times a factor to another place.
pub(crate) struct ScaledTo<'a> {
    pub(crate) from: Floats<'a>,
    pub(crate) to: FloatsMut<'a>,
    pub(crate) factor: f32,
}

impl VectorLoop for ScaledTo<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert_eq!(self.from.len(), self.to.len());
        for at in (0..self.from.len()).step_by(L::COUNT) {
            self.to.store(at, self.from.load::<L>(at).mul(L::splat(self.factor)));
        }
    }
}

/// Replaces scores by `cap * tanh(score / cap)`.
pub(crate) struct SoftCapped<'a> {
    pub(crate) scores: &'a mut [f32],
    pub(crate) cap: f32,
}

impl VectorLoop for SoftCapped<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let (mut floats, cap) = (FloatsMut::from(self.scores), L::splat(self.cap));
        for at in (0..floats.len()).step_by(L::COUNT) {
            let x = floats.as_floats().load::<L>(at);
            floats.store(at, tanh(x.div(cap)).mul(cap));
        }
    }
}
