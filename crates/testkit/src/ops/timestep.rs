//! The embedding of diffusion timesteps.

use crate::Elements;

pub(super) fn embedding(dim: u32, max_period: u32, timesteps: &Elements) -> Vec<f64> {
    let half = dim / 2;
    let slowest = f64::from(max_period).ln();
    let mut result = Vec::new();
    for time in timesteps.values() {
        let angles = (0..half).map(|at| time * (-slowest * f64::from(at) / f64::from(half)).exp());
        result.extend(angles.clone().map(f64::cos));
        result.extend(angles.map(f64::sin));
        if dim % 2 == 1 {
            result.push(0.0);
        }
    }
    result
}
