//! How exact results must be.

use orlop_backend::DeviceClass;
use orlop_graph::DType;

/// How exact a result must be: the largest normalised mean squared error, `Σ(x - y)² / Σy²`, where `y` is the
/// reference.
///
/// For devices that compute in F32 on F32 operands:
///
/// | | processors | others |
/// |---|---|---|
/// | [`Tolerance::Exact`] | equal bits | equal bits |
/// | [`Tolerance::Elementwise`] | 1e-10 | 1e-8 |
/// | [`Tolerance::Reduction`] | 1e-9 | 1e-7 |
/// | [`Tolerance::Rotation`] | 1e-7 | 1e-6 |
/// | [`Tolerance::Product`], [`Tolerance::Attention`] | 1e-6 | 1e-5 |
/// | [`Tolerance::Composite`] | 1e-5 | 1e-4 |
///
/// A result stored as F16 may differ by 1e-6, one stored as BF16 by 1e-4: a number on the border between two
/// halves may fall either way. Products and attention may round activations to the type of the other operand,
/// so there the operands' types count like the result's. Products with quantised weights are held to the error
/// that rounding the activations to 8 bits causes by itself; see [`Tolerance::Product`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tolerance {
    /// Integers, and elements that are only moved or converted to a plain type.
    Exact,
    /// A function of one or two elements.
    Elementwise,
    /// Sums along rows, and what divides by them: norms, soft-max, pools.
    Reduction,
    /// Sines and cosines of large angles.
    Rotation,
    /// Products. With quantised weights and another precision than [`orlop_backend::Precision::F32`]: at most 3 times the error of
    /// the exact product whose activations went through the paired 8-bit type (Q8_0; Q8_1 where the weights'
    /// type has a minimum; Q8_K for blocks of 256), if that is larger. Devices may round in another way, so over
    /// the few elements of a case one error may be a few times the other.
    Product,
    /// Attention, whose products are followed by a soft-max: with quantised K, twice the error of 8-bit queries.
    Attention,
    /// Elements converted to a quantised type, compared as numbers: 1e-5 for 8 bits, 2e-3 for fewer.
    Encoded,
    /// Graphs of many ops. With quantised weights 1e-3, as errors add up.
    Composite,
}

impl Tolerance {
    /// The limit for a result of a type, computed from these operand types. `None`: the bits must be equal.
    pub fn limit(self, class: DeviceClass, result: DType, operands: &[DType]) -> Option<f64> {
        let processor = matches!(class, DeviceClass::Cpu | DeviceClass::Test);
        let own = |strict: f64, lax: f64| if processor { strict } else { lax };
        if result.is_integer() || self == Tolerance::Exact {
            return None;
        }
        let base = match self {
            Tolerance::Exact | Tolerance::Elementwise => own(1e-10, 1e-8),
            Tolerance::Reduction => own(1e-9, 1e-7),
            Tolerance::Rotation => own(1e-7, 1e-6),
            Tolerance::Product | Tolerance::Attention => own(1e-6, 1e-5),
            Tolerance::Composite if operands.iter().any(|dtype| dtype.is_quantized()) => 1e-3,
            Tolerance::Composite => own(1e-5, 1e-4),
            Tolerance::Encoded => 0.0,
        };
        let counted = match self {
            Tolerance::Product | Tolerance::Attention | Tolerance::Composite => operands,
            _ => &[],
        };
        let rounding = counted.iter().chain([&result]).map(|dtype| rounding(*dtype));
        Some(rounding.fold(base, f64::max))
    }
}

/// What storing in a type may change by itself.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-6,
        DType::BF16 => 1e-4,
        _ => 0.0,
    }
}

/// What the numbers of two encodings may differ by.
pub(super) fn encoding(dtype: DType) -> f64 {
    match dtype {
        DType::Q8_0 | DType::Q8_1 | DType::Q8_K => 1e-5,
        _ => 2e-3,
    }
}

/// The 8-bit type that activations go through for weights of a type.
pub(super) fn paired(weights: DType) -> DType {
    match weights {
        _ if weights.block_elements() == 256 => DType::Q8_K,
        DType::Q4_1 | DType::Q5_1 => DType::Q8_1,
        _ => DType::Q8_0,
    }
}
