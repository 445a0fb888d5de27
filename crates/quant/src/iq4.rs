//! The table of 16 uneven levels behind IQ4_NL and IQ4_XS, and the search for a scale over it.

use crate::search::{best_scale, extreme};

/// The level of each 4-bit code: denser near zero, as weights are. There is no zero.
pub const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Midway between neighbouring levels.
const MIDPOINTS: [f32; 15] = {
    let mut midpoints = [0.0; 15];
    let mut code = 0;
    while code < 15 {
        midpoints[code] = (VALUES[code] as f32 + VALUES[code + 1] as f32) / 2.0;
        code += 1;
    }
    midpoints
};

/// The code whose level is nearest to `value`; a tie goes to the higher level, NaN to code 0.
pub fn code(value: f32) -> u8 {
    let mut code = 0;
    for step in [8, 4, 2, 1] {
        // Arithmetic, not a branch: which way it goes is a coin toss, and encoding spends its time here.
        code += step * usize::from(value >= MIDPOINTS[code + step - 1]);
    }
    code as u8
}

/// The scale that fits the levels to `values` best; negative where the negative levels suit the positive
/// values, since the table is lopsided.
pub(crate) fn scale(values: &[f32; 32], importance: Option<&[f32; 32]>) -> f32 {
    let extreme = extreme(values);
    let candidates = (-7..=7).flat_map(|step| {
        let step = step as f32;
        [(step - 127.0) / extreme, (step + 113.0) / extreme]
    });
    best_scale(values, importance, candidates, |value| f32::from(VALUES[usize::from(code(value))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_nearest_level() {
        for tenth in -1500..1500 {
            let value = tenth as f32 / 10.0;
            let found = f32::from(VALUES[usize::from(code(value))]);
            let least = VALUES.iter().map(|v| (f32::from(*v) - value).abs()).fold(f32::INFINITY, f32::min);
            assert_eq!((found - value).abs(), least, "{value}");
        }
        assert_eq!(code(-4.5), 8);
        assert_eq!(code(f32::NAN), 0);
        assert_eq!(code(f32::INFINITY), 15);
        assert_eq!(code(f32::NEG_INFINITY), 0);
    }
}
