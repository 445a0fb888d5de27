//! Loops over floats, written once for vectors of any width: [`Lanes`] are the vectors, [`VectorLoop`] is a loop, and
//! [`on`] runs it with the vectors of an [`Isa`]. The scalar twin of each loop is the same code with plain arrays
//! as vectors.

mod column_scores;
mod convert;
mod floats;
mod lanes;
mod maps;
mod math;
mod moments;
mod product;
mod scores;
mod search;
mod strided;
mod weights;

#[cfg(test)]
mod tests;

pub(crate) use self::column_scores::ColumnScores;
pub(crate) use self::convert::{HalfRows, decode, encode};
pub(crate) use self::floats::{Floats, FloatsMut};
pub(crate) use self::lanes::Lanes;
pub(crate) use self::maps::{Map, Zip, function};
pub(crate) use self::math::exp_of;
pub(crate) use self::moments::{Shifted, Squares, Sum};
pub(crate) use self::product::{Matrix, Product, Transposition};
pub(crate) use self::scores::Scores;
pub(crate) use self::search::{LargestAbove, LargestOf};
pub(crate) use self::strided::{Element, Strided};
pub(crate) use self::weights::{Scaled, ScaledSum, ScaledTo, SoftCapped, Weights};

use crate::isa::Isa;

/// A loop for vectors of any width.
pub(crate) trait VectorLoop {
    type Output;

    /// Implementations are `inline(always)`, as is all that they call with vectors: only so the compiler may use the
    /// instructions of the function that this ends up in.
    fn run<L: Lanes>(self) -> Self::Output;
}

/// Plain code that the compiler may vectorize for any width.
pub(crate) trait PlainLoop {
    type Output;

    /// Implementations are `inline(always)`, as in [`VectorLoop`].
    fn run(self) -> Self::Output;
}

struct Compiled<P>(P);

impl<P: PlainLoop> VectorLoop for Compiled<P> {
    type Output = P::Output;

    #[inline(always)]
    fn run<L: Lanes>(self) -> P::Output {
        self.0.run()
    }
}

/// Runs plain code that is compiled for the vectors of `isa`. The result is the same for all.
pub(crate) fn compiled<P: PlainLoop>(isa: Isa, plain: P) -> P::Output {
    on(isa, Compiled(plain))
}

/// Runs a loop with the vectors of `isa`.
pub(crate) fn on<W: VectorLoop>(isa: Isa, work: W) -> W::Output {
    match isa.vectors() {
        // SAFETY: `on_avx512` asks for its target features; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { on_avx512(work) },
        // SAFETY: `on_avx2` asks for its target features; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { on_avx2(work) },
        _ => work.run::<lanes::ScalarLanes>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
fn on_avx512<W: VectorLoop>(work: W) -> W::Output {
    work.run::<lanes::Avx512>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn on_avx2<W: VectorLoop>(work: W) -> W::Output {
    work.run::<lanes::Avx2>()
}
