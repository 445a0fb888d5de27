//! Sums over rows, and rows shifted and scaled. All in `f64`, as a mean may be far larger than the
//! deviations from it.

use super::{Floats, FloatsMut, Lanes, VectorLoop};

/// The sum of all elements.
pub(crate) struct Sum<'a>(pub(crate) Floats<'a>);

impl VectorLoop for Sum<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let (x, one) = (self.0, L::wide(1.0));
        let whole = x.len() / (2 * L::COUNT) * (2 * L::COUNT);
        let mut sums = [L::wide(0.0); 2];
        for at in (0..whole).step_by(2 * L::COUNT) {
            for (part, sum) in sums.iter_mut().enumerate() {
                *sum = L::wide_mul_add(x.load::<L>(at + part * L::COUNT).widen(), one, *sum);
            }
        }
        let rest: f64 = (whole..x.len()).map(|at| f64::from(x.get(at))).sum();
        L::wide_sum(sums[0]) + L::wide_sum(sums[1]) + rest
    }
}

/// The sum of squared distances from a mean.
pub(crate) struct Squares<'a>(pub(crate) Floats<'a>, pub(crate) f64);

impl VectorLoop for Squares<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let (x, mean) = (self.0, L::wide(self.1));
        let whole = x.len() / (2 * L::COUNT) * (2 * L::COUNT);
        let mut sums = [L::wide(0.0); 2];
        for at in (0..whole).step_by(2 * L::COUNT) {
            for (part, sum) in sums.iter_mut().enumerate() {
                let distance = L::wide_sub(x.load::<L>(at + part * L::COUNT).widen(), mean);
                *sum = L::wide_mul_add(distance, distance, *sum);
            }
        }
        let rest = (whole..x.len()).map(|at| f64::from(x.get(at)) - self.1);
        L::wide_sum(sums[0]) + L::wide_sum(sums[1]) + rest.map(|x| x * x).sum::<f64>()
    }
}

/// `out = (x - mean) * factor`; both have the same length, and are apart or exactly the same.
pub(crate) struct Shifted<'a> {
    pub(crate) x: Floats<'a>,
    pub(crate) mean: f64,
    pub(crate) factor: f64,
    pub(crate) out: FloatsMut<'a>,
}

impl VectorLoop for Shifted<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert!(self.x.len() == self.out.len());
        let (mean, factor, zero) = (L::wide(self.mean), L::wide(self.factor), L::wide(0.0));
        for at in (0..self.x.len()).step_by(L::COUNT) {
            let distance = L::wide_sub(self.x.load::<L>(at).widen(), mean);
            self.out.store(at, L::narrow(L::wide_mul_add(distance, factor, zero)));
        }
    }
}
