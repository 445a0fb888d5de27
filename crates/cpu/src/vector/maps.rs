//! Functions of each element.

use super::math::{exp, gated};
use super::{Floats, FloatsMut, Lanes, VectorLoop};

/// A function of vectors.
pub(crate) trait Unary: Copy {
    /// Implementations are `inline(always)`.
    fn of<L: Lanes>(self, x: L) -> L;
}

/// A function of pairs of vectors.
pub(crate) trait Binary: Copy {
    /// Implementations are `inline(always)`.
    fn of<L: Lanes>(self, a: L, b: L) -> L;
}

/// `out = function(x)`; both have the same length, and are apart or exactly the same.
pub(crate) struct Map<'a, F> {
    pub(crate) function: F,
    pub(crate) x: Floats<'a>,
    pub(crate) out: FloatsMut<'a>,
}

impl<F: Unary> VectorLoop for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert!(self.x.len() == self.out.len());
        for at in (0..self.x.len()).step_by(L::COUNT) {
            self.out.store(at, self.function.of::<L>(self.x.load(at)));
        }
    }
}

/// `out = function(a, b)`; all have the same length, and operands are apart from the result or exactly it.
pub(crate) struct Zip<'a, F> {
    pub(crate) function: F,
    pub(crate) a: Floats<'a>,
    pub(crate) b: Floats<'a>,
    pub(crate) out: FloatsMut<'a>,
}

impl<F: Binary> VectorLoop for Zip<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        assert!(self.a.len() == self.out.len() && self.b.len() == self.out.len());
        for at in (0..self.a.len()).step_by(L::COUNT) {
            self.out.store(at, self.function.of::<L>(self.a.load(at), self.b.load(at)));
        }
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $kind:ident $name:ident, |$($x:ident),+| $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(crate) struct $name;

            impl $kind for $name {
                #[inline(always)]
                fn of<L: Lanes>(self, $($x: L),+) -> L {
                    $value
                }
            }
        )*
    };
}

/// The functions.
pub(crate) mod function {
    use super::*;

    functions! {
        Unary Exp, |x| exp(x);
        Unary Relu, |x| x.or_if_not_positive(L::splat(0.0));
        Unary Sigmoid, |x| gated(L::splat(1.0), x);
        Unary Silu, |x| gated(x, x);
        Unary GeluQuick, |x| gated(x, x.mul(L::splat(1.702)));
        /// `x / 2 · (1 + tanh(z))`, which is `x · sigmoid(2 z)`.
        Unary Gelu, |x| {
            let cubic = x.mul(x).mul(x).mul_add(L::splat(0.044_715), x);
            gated(x, cubic.mul(L::splat(1.595_769_2)))
        };
        Binary Add, |a, b| a.add(b);
        Binary Sub, |a, b| a.sub(b);
        Binary Mul, |a, b| a.mul(b);
        Binary Div, |a, b| a.div(b);
    }

    /// A function of one element at a time.
    #[derive(Clone, Copy)]
    pub(crate) struct PerElement<F>(pub(crate) F);

    impl<F: Fn(f32) -> f32 + Copy> Unary for PerElement<F> {
        #[inline(always)]
        fn of<L: Lanes>(self, x: L) -> L {
            let mut lanes = [0.0; 16];
            // SAFETY: `store` asks for `COUNT` writable floats: the array has 16, and `COUNT` is at most that.
            unsafe { x.store(lanes.as_mut_ptr()) };
            for lane in &mut lanes[..L::COUNT] {
                *lane = self.0(*lane);
            }
            // SAFETY: `load` asks for `COUNT` readable floats: the array has 16, and `COUNT` is at most that.
            unsafe { L::load(lanes.as_ptr()) }
        }
    }

    /// A constant factor.
    #[derive(Clone, Copy)]
    pub(crate) struct Scale(pub(crate) f32);

    impl Unary for Scale {
        #[inline(always)]
        fn of<L: Lanes>(self, x: L) -> L {
            x.mul(L::splat(self.0))
        }
    }

    /// A function of the first, times the second.
    #[derive(Clone, Copy)]
    pub(crate) struct Gated<F>(pub(crate) F);

    impl<F: Unary> Binary for Gated<F> {
        #[inline(always)]
        fn of<L: Lanes>(self, a: L, b: L) -> L {
            self.0.of(a).mul(b)
        }
    }
}
