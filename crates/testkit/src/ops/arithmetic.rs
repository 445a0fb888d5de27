//! Arithmetic of elements, with broadcasting.

use super::coordinates::coordinates;
use crate::Elements;

/// `b` is repeated along every dimension.
pub(super) fn binary(a: &Elements, b: &Elements, function: fn(f64, f64) -> f64) -> Vec<f64> {
    let repeated = |at: [usize; 4]| b.at(std::array::from_fn(|dim| at[dim] % b.extents()[dim]));
    a.values().iter().zip(coordinates(a.extents())).map(|(a, at)| function(*a, repeated(at))).collect()
}

pub(super) fn scale(x: &Elements, scale: f32, bias: f32) -> Vec<f64> {
    x.values().iter().map(|x| f64::from(scale) * x + f64::from(bias)).collect()
}

pub(super) fn clamp(x: &Elements, min: f32, max: f32) -> Vec<f64> {
    let (min, max) = (f64::from(min), f64::from(max));
    // `f64::clamp` panics on an empty range; here its lower end wins.
    let limit = |x: &f64| {
        let x = if *x > max { max } else { *x };
        if x < min { min } else { x }
    };
    x.values().iter().map(limit).collect()
}

pub(super) fn arange(start: f32, step: f32, steps: u64) -> Vec<f64> {
    (0..steps).map(|index| f64::from(start) + f64::from(step) * index as f64).collect()
}
