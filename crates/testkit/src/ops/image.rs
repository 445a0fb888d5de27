//! Pooling and upscaling.

use orlop_graph::{Interpolation, Pool, PoolKind, TensorDesc};

use super::coordinates::coordinates;
use crate::Elements;
use crate::elements::extents;

pub(super) fn pool_1d(pool: &Pool, x: &Elements, output: &TensorDesc) -> Vec<f64> {
    let element = |[at, j, k, l]: [usize; 4]| {
        let window = window(pool, 0, at, x.extents()[0]).map(|i| x.at([i, j, k, l]));
        pooled(pool.kind, window, f64::from(pool.kernel[0]))
    };
    coordinates(extents(output)).map(element).collect()
}

pub(super) fn pool_2d(pool: &Pool, x: &Elements, output: &TensorDesc) -> Vec<f64> {
    let [width, height, _, _] = x.extents();
    let element = |[at_x, at_y, k, l]: [usize; 4]| {
        let window = window(pool, 1, at_y, height)
            .flat_map(|j| window(pool, 0, at_x, width).map(move |i| x.at([i, j, k, l])));
        pooled(pool.kind, window, f64::from(pool.kernel[0]) * f64::from(pool.kernel[1]))
    };
    coordinates(extents(output)).map(element).collect()
}

/// The elements of a window along one dimension that do not lie in the padding.
fn window(pool: &Pool, dim: usize, at: usize, extent: usize) -> impl Iterator<Item = usize> + use<> {
    let (padding, start) = (pool.padding[dim] as usize, at * pool.stride[dim] as usize);
    let end = (start + pool.kernel[dim] as usize).saturating_sub(padding);
    start.saturating_sub(padding)..end.min(extent)
}

fn pooled(kind: PoolKind, window: impl Iterator<Item = f64>, size: f64) -> f64 {
    match kind {
        PoolKind::Max => window.fold(f64::NEG_INFINITY, |max, x| if x > max || x.is_nan() { x } else { max }),
        PoolKind::Mean => window.sum::<f64>() / size,
    }
}

pub(super) fn upscale(mode: Interpolation, x: &Elements, output: &TensorDesc) -> Vec<f64> {
    let (source, target) = (x.extents(), extents(output));
    // In 128 bits, as the product of two extents need not fit 64.
    let nearest = |at: usize, dim: usize| (at as u128 * source[dim] as u128 / target[dim] as u128) as usize;
    let element = |[i, j, k, l]: [usize; 4]| {
        let (k, l) = (nearest(k, 2), nearest(l, 3));
        match mode {
            Interpolation::Nearest => x.at([nearest(i, 0), nearest(j, 1), k, l]),
            Interpolation::Bilinear => {
                let (x0, x1, right) = between(i, source[0], target[0]);
                let (y0, y1, below) = between(j, source[1], target[1]);
                let blend = |y: usize| x.at([x0, y, k, l]) * (1.0 - right) + x.at([x1, y, k, l]) * right;
                blend(y0) * (1.0 - below) + blend(y1) * below
            }
        }
    };
    coordinates(target).map(element).collect()
}

/// The two source elements around a position, and how far it is on the way to the second. Centres of elements
/// correspond, so positions near the edge lie outside all centres and take the outermost element.
fn between(at: usize, source: usize, target: usize) -> (usize, usize, f64) {
    let position = (at as f64 + 0.5) * source as f64 / target as f64 - 0.5;
    let last = source.saturating_sub(1);
    if position <= 0.0 {
        return (0, 0, 0.0);
    }
    let first = (position.floor() as usize).min(last);
    (first, (first + 1).min(last), (position - first as f64).min(1.0))
}
