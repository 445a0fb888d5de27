//! Functions of single elements that have no vector form.

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
