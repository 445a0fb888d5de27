//! The functions themselves, in F32 and without branches where it can be. Those that are inlined become vector code in
//! the loops over them.

use std::f32::consts::LOG2_E;

/// `e` to the power of `x`, to about one unit in the last place, subnormal results included.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Beyond these everything is infinite or zero; NaN passes both comparisons.
    let x = if x > 150.0 { 150.0 } else { x };
    let x = if x < -150.0 { -150.0 } else { x };
    // Adding 1.5 · 2²³ leaves the nearest integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * LOG2_E + ROUND;
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    // ln 2 in two parts, the first with so few bits that its product is exact.
    let n = shifted - ROUND;
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    // Taylor's series: what is left out is below 6e-9 for |r| up to ln 2 / 2.
    let mut sum = 1.0 / 5040.0;
    for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * r + factor;
    }
    // In two steps, as the power itself may lie outside of F32's range where the result does not.
    let half = power >> 1;
    sum * two_to(half) * two_to(power - half)
}

/// 2 to a power within the range of exponents.
#[inline(always)]
fn two_to(power: i32) -> f32 {
    f32::from_bits((power.wrapping_add(127) as u32) << 23)
}

#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[inline(always)]
pub(super) fn gelu_quick(x: f32) -> f32 {
    x / (1.0 + exp(-1.702 * x))
}

/// `x / 2 · (1 + tanh(z))`, which is `x · sigmoid(2 z)`.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    const TWICE_SQRT_2_PI: f32 = 1.595_769_2;
    x / (1.0 + exp(-TWICE_SQRT_2_PI * (x + 0.044_715 * x * x * x)))
}

pub(super) fn gelu_erf(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * complementary_error_function(-x * std::f64::consts::FRAC_1_SQRT_2)) as f32
}

/// `1 - erf(z)` with a relative error below 1e-9: `exp(-z²)` times a polynomial in `t = 2 / (2 + z)`, fitted to
/// the rest at Chebyshev points; negative arguments by symmetry.
fn complementary_error_function(z: f64) -> f64 {
    const FIT: [f64; 14] = [
        2.599_749_571_17e-6,
        -8.508_864_940_64e-6,
        -9.776_580_490_95e-6,
        6.768_779_073_06e-5,
        -2.239_006_000_16e-5,
        -3.281_001_276_90e-4,
        4.206_832_648_95e-4,
        1.544_047_670_83e-3,
        -3.240_006_637_76e-3,
        -1.075_511_614_91e-2,
        1.822_115_321_37e-2,
        1.397_360_326_61e-1,
        3.435_803_412_21e-1,
        5.107_913_527_61e-1,
    ];
    let size = z.abs();
    let t = 2.0 / (2.0 + size);
    let y = 2.0 * t - 1.0;
    let tail = t * FIT.iter().fold(0.0, |sum, factor| sum * y + factor) * (-size * size).exp();
    if z < 0.0 { 2.0 - tail } else { tail }
}

#[inline(always)]
pub(super) fn hard_sigmoid(x: f32) -> f32 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

/// `ln(1 + exp(x))`, written so that neither end overflows or loses digits.
pub(super) fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_good_to_the_last_place() {
        for step in -2_080_000..1_774_400 {
            let x = step as f32 / 20_000.0;
            let (found, exact) = (f64::from(exp(x)), f64::from(x).exp());
            let unit = (exact * f64::from(f32::EPSILON)).max(f64::from(f32::from_bits(1)));
            assert!((found - exact).abs() <= 1.5 * unit, "exp({x}) = {found}, not {exact}");
        }
        assert_eq!([exp(f32::NEG_INFINITY), exp(-1e30), exp(-0.0)], [0.0, 0.0, 1.0]);
        assert_eq!([exp(f32::INFINITY), exp(89.0)], [f32::INFINITY; 2]);
        assert!(exp(f32::NAN).is_nan() && exp(-f32::NAN).is_nan());
    }

    #[test]
    fn the_error_function_agrees_with_tables() {
        // Abramowitz and Stegun, tables 7.1 and 7.3.
        let table = [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (3.0, 2.209_049_699_858_544e-5),
            (5.0, 1.537_459_794_428_035e-12),
            (-1.0, 1.842_700_792_949_715),
            (-3.0, 1.999_977_909_503_001_4),
        ];
        for (z, expected) in table {
            let found = complementary_error_function(z);
            assert!((found - expected).abs() <= 1e-9 * expected, "erfc({z}) = {found}, not {expected}");
        }
        assert_eq!(complementary_error_function(f64::INFINITY), 0.0);
        assert_eq!(complementary_error_function(f64::NEG_INFINITY), 2.0);
        assert!(complementary_error_function(f64::NAN).is_nan());
    }
}
