//! Functions of one element, and gates.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use orlop_graph::{Glu, Unary};

use crate::Elements;

pub(super) fn unary(function: Unary, x: &Elements) -> Vec<f64> {
    let function = self::function(function);
    x.values().iter().map(|x| function(*x)).collect()
}

pub(super) fn leaky_relu(x: &Elements, slope: f32) -> Vec<f64> {
    x.values().iter().map(|x| if *x > 0.0 { *x } else { f64::from(slope) * x }).collect()
}

pub(super) fn gated(gate: Glu, swapped: bool, x: &[Elements]) -> Vec<f64> {
    let gate = self::gate(gate);
    let product = |(a, b): (&f64, &f64)| gate(*a) * b;
    if let [a, b] = x {
        return a.values().iter().zip(b.values()).map(product).collect();
    }
    let halves = x[0].rows().flat_map(|row| {
        let (first, second) = row.split_at(row.len() / 2);
        if swapped { second.iter().zip(first) } else { first.iter().zip(second) }
    });
    halves.map(product).collect()
}

fn function(function: Unary) -> fn(f64) -> f64 {
    match function {
        Unary::Sqr => |x| x * x,
        Unary::Sqrt => f64::sqrt,
        Unary::Log => f64::ln,
        Unary::Exp => f64::exp,
        Unary::Sin => f64::sin,
        Unary::Cos => f64::cos,
        Unary::Neg => |x| -x,
        Unary::Abs => f64::abs,
        Unary::Sgn => |x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        Unary::Step => |x| f64::from(u8::from(x > 0.0)),
        Unary::Relu => relu,
        Unary::Gelu => gelu,
        Unary::GeluErf => gelu_erf,
        Unary::GeluQuick => gelu_quick,
        Unary::Silu => silu,
        Unary::Sigmoid => sigmoid,
        Unary::Tanh => f64::tanh,
        Unary::Elu => |x| if x > 0.0 { x } else { x.exp_m1() },
        Unary::HardSwish => |x| x * hard_sigmoid(x),
        Unary::HardSigmoid => hard_sigmoid,
        Unary::Softplus => softplus,
    }
}

fn gate(gate: Glu) -> fn(f64) -> f64 {
    match gate {
        Glu::Relu => relu,
        Glu::Gelu => gelu,
        Glu::GeluErf => gelu_erf,
        Glu::GeluQuick => gelu_quick,
        Glu::Silu => silu,
    }
}

fn relu(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

fn gelu_erf(x: f64) -> f64 {
    0.5 * x * complementary_error_function(-x * FRAC_1_SQRT_2)
}

fn gelu_quick(x: f64) -> f64 {
    x * sigmoid(1.702 * x)
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn hard_sigmoid(x: f64) -> f64 {
    ((x + 3.0) / 6.0).clamp(0.0, 1.0)
}

/// `ln(1 + exp(x))`, written so that neither end overflows or loses digits.
pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `1 - erf(x)`. For small arguments the series `erf(x) = 2 / sqrt(pi) * exp(-x²) * Σ 2ⁿ x²ⁿ⁺¹ / (2n + 1)!!`,
/// whose terms all have one sign; beyond, the continued fraction of the complement, from its far end.
fn complementary_error_function(x: f64) -> f64 {
    let size = x.abs();
    if size.is_nan() {
        return x;
    }
    if size < 2.5 {
        let (mut sum, mut term, mut n) = (0.0, size, 0.0);
        while sum + term != sum {
            sum += term;
            n += 1.0;
            term *= 2.0 * size * size / (2.0 * n + 1.0);
        }
        return 1.0 - (2.0 / PI.sqrt() * (-size * size).exp() * sum).copysign(x);
    }
    let fraction = (1..=120).rev().fold(size, |below, n| size + f64::from(n) / 2.0 / below);
    let tail = (-size * size).exp() / PI.sqrt() / fraction;
    if x > 0.0 { tail } else { 2.0 - tail }
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
        for (x, expected) in table {
            let found = complementary_error_function(x);
            assert!((found - expected).abs() <= 1e-12 * expected, "erfc({x}) = {found}, not {expected}");
        }
        assert_eq!(complementary_error_function(f64::INFINITY), 0.0);
        assert_eq!(complementary_error_function(f64::NEG_INFINITY), 2.0);
    }
}
